#include "worker/comm/backends/hierarchical/hierarchical_collectives.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "common/error.h"
#include "common/whole_milliseconds.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

Span part(Span span, std::size_t first, std::size_t count) {
  return {static_cast<std::byte*>(span.data) + first * size_of(span.dtype), count, span.dtype};
}
ConstSpan part(ConstSpan span, std::size_t first, std::size_t count) {
  return {static_cast<const std::byte*>(span.data) + first * size_of(span.dtype), count, span.dtype};
}
Span part(const Chunk& chunk, Span whole) {
  return part(whole, chunk.first, chunk.count);
}
Span slice_of(const Chunk& chunk, Span whole, int leader) {
  return part(whole, chunk.first + static_cast<std::size_t>(leader) * chunk.slice(), chunk.slice());
}

// The operation that the levels compute: an average is divided once, at the end.
ReduceOp elementwise(ReduceOp op) {
  return op == ReduceOp::average ? ReduceOp::sum : op;
}

}  // namespace

bool HierarchicalCollectives::supports(const Operation& operation) const {
  if (operation.unequal()) return false;
  switch (operation.kind) {
    case OpKind::allreduce:
    case OpKind::broadcast:
    case OpKind::barrier:
      return true;
    case OpKind::reduce:
      return levels_.hosts.local_rank_of(operation.peer) < levels_.leaders;
    case OpKind::allgather:
    case OpKind::reduce_scatter:
      return levels_.hosts.even_and_in_order();
    default:
      return false;
  }
}

void HierarchicalCollectives::execute(const Collective& collective) {
  deadline_ = Deadline::in(collective.timeout);
  try {
    dispatch(collective);
  } catch (const std::exception& error) {
    if (levels_.rail) levels_.rail->stop();
    throw std::runtime_error(error.what());  // drops rank numbers, which are those of one level
  }
}

void HierarchicalCollectives::dispatch(const Collective& collective) {
  switch (collective.operation.kind) {
    case OpKind::allreduce:
      return allreduce(collective);
    case OpKind::reduce:
      return reduce(collective);
    case OpKind::broadcast:
      return broadcast(collective);
    case OpKind::allgather:
      return allgather(collective);
    case OpKind::reduce_scatter:
      return reduce_scatter(collective);
    case OpKind::barrier:
      return barrier();
    default:
      throw make_error(Errc::internal, "{} cannot be executed in two levels", describe(collective.operation));
  }
}

void HierarchicalCollectives::allreduce(const Collective& collective) {
  const auto& whole = collective.output;
  const auto op = collective.operation.op;
  const int ranks = levels_.hosts.ranks();
  const auto chunks = chunks_of_buffer(whole.count, size_of(whole.dtype), levels_.leaders);
  const auto memory = [&](const Chunk& chunk, std::size_t number) {
    return all_lead(chunk) ? slot_for(chunk, number, whole.dtype) : own_slice(chunk, whole);
  };
  const auto prepare_rail = [&](const Chunk& chunk, std::size_t number) -> Rail::Task {
    const auto slice = memory(chunk, number);
    reduce_to_leaders(chunk, whole, slice, elementwise(op));
    if (!leads(chunk)) return {};
    return [sum = between_hosts({.kind = OpKind::allreduce, .op = elementwise(op)}, slice, slice), slice, op,
            ranks](Transport& rail) {
      sum(rail);
      finish_reduction(op, slice, ranks);
    };
  };
  pipeline(chunks, prepare_rail,
           [&](const Chunk& chunk, std::size_t number) { gather_from_leaders(chunk, memory(chunk, number), whole); });
}

void HierarchicalCollectives::reduce(const Collective& collective) {
  const auto dtype = collective.operation.dtype;
  const auto op = collective.operation.op;
  const auto count = collective.operation.count;
  const int root = collective.operation.peer;
  const int leader = levels_.hosts.local_rank_of(root);
  const bool leads = levels_.local_rank() == leader;
  const bool is_root = levels_.rank == root;
  const Span buffer{const_cast<void*>(collective.input.data), count, dtype};  // the transports write only to the root's
  const auto prepare_rail = [&](const Chunk& chunk, std::size_t number) -> Rail::Task {
    auto values = part(chunk, is_root ? collective.output : buffer);
    if (leads && !is_root) {
      const auto slot = slot_for(chunk, number, dtype);
      std::memcpy(slot.data, values.data, values.bytes());
      values = slot;
    }
    if (levels_.local) within_host({.kind = OpKind::reduce, .op = elementwise(op), .peer = leader}, values, values);
    if (!leads) return {};
    return between_hosts({.kind = OpKind::reduce, .op = elementwise(op), .peer = levels_.hosts.host_of(root)}, values,
                         values);
  };
  pipeline(chunks_of_buffer(count, size_of(dtype), 1), prepare_rail, [](const Chunk&, std::size_t) {});
  if (is_root) finish_reduction(op, collective.output, levels_.hosts.ranks());
}

void HierarchicalCollectives::broadcast(const Collective& collective) {
  const auto& whole = collective.output;
  const int root = collective.operation.peer;
  const int root_host = levels_.hosts.host_of(root);
  const bool source = levels_.same_host(root);
  const auto memory = [&](const Chunk& chunk, std::size_t number) {
    return all_lead(chunk) && !source ? slot_for(chunk, number, whole.dtype) : own_slice(chunk, whole);
  };
  const auto prepare_rail = [&](const Chunk& chunk, std::size_t number) -> Rail::Task {
    if (source && levels_.local) {
      const auto values = part(chunk, whole);
      within_host({.kind = OpKind::broadcast, .peer = levels_.hosts.local_rank_of(root)}, values, values);
    }
    if (!leads(chunk)) return {};
    const auto slice = memory(chunk, number);
    return between_hosts({.kind = OpKind::broadcast, .peer = root_host}, slice, slice);
  };
  const auto distribute = [&](const Chunk& chunk, std::size_t number) {
    if (!source) gather_from_leaders(chunk, memory(chunk, number), whole);
  };
  pipeline(chunks_of_buffer(whole.count, size_of(whole.dtype), levels_.leaders), prepare_rail, distribute);
}

// The rail gathers the block of this local rank from every host. The ranks of a host gather their own blocks meanwhile,
// and then those of each other host.
void HierarchicalCollectives::allgather(const Collective& collective) {
  const auto count = collective.input.count;
  const auto hosts = static_cast<std::size_t>(levels_.hosts.hosts());
  const auto all = scratch(count * hosts, collective.input.dtype);
  const auto tasks = levels_.rail->post(between_hosts({.kind = OpKind::allgather}, collective.input, all));
  const auto gather = [&](std::size_t host, ConstSpan block) {
    const auto width = count * static_cast<std::size_t>(levels_.local_size());
    within_host({.kind = OpKind::allgather}, block, part(collective.output, host * width, width));
  };
  const auto own = static_cast<std::size_t>(levels_.host());
  gather(own, collective.input);
  levels_.rail->await(tasks);
  for (std::size_t host = 0; host < hosts; ++host) {
    if (host != own) gather(host, part(all, host * count, count));
  }
}

void HierarchicalCollectives::reduce_scatter(const Collective& collective) {
  const auto& output = collective.output;
  const auto op = collective.operation.op;
  const auto hosts = static_cast<std::size_t>(levels_.hosts.hosts());
  const auto width = output.count * static_cast<std::size_t>(levels_.local_size());
  const auto sums = scratch(output.count * hosts, output.dtype);
  for (std::size_t host = 0; host < hosts; ++host) {
    within_host({.kind = OpKind::reduce_scatter, .op = elementwise(op)}, part(collective.input, host * width, width),
                part(sums, host * output.count, output.count));
  }
  between_hosts({.kind = OpKind::reduce_scatter, .op = elementwise(op)}, sums, output)(levels_.rail->transport());
  finish_reduction(op, output, levels_.hosts.ranks());
}

void HierarchicalCollectives::barrier() {
  if (levels_.local) within_host({}, {}, {});
  if (levels_.rail && levels_.local_rank() == 0) between_hosts({}, {}, {})(levels_.rail->transport());
  if (levels_.local) within_host({}, {}, {});
}

// prepare_rail(chunk, number) does what precedes the exchange between hosts and returns the rail's task, if any;
// distribute(chunk, number) follows once the task is done. The task of a single chunk runs on this thread.
template <class PrepareRail, class Distribute>
void HierarchicalCollectives::pipeline(const std::vector<Chunk>& chunks, PrepareRail prepare_rail,
                                       Distribute distribute) {
  std::vector<std::uint64_t> tasks(chunks.size());
  for (std::size_t step = 0; step < chunks.size() + rail_lag; ++step) {
    if (step < chunks.size()) {
      if (auto task = prepare_rail(chunks[step], step)) {
        if (chunks.size() == 1) {
          task(levels_.rail->transport());
        } else {
          tasks[step] = levels_.rail->post(std::move(task));
        }
      }
    }
    if (step < rail_lag) continue;
    const auto number = step - rail_lag;
    if (tasks[number] > 0) levels_.rail->await(tasks[number]);
    distribute(chunks[number], number);
  }
}

// Reduces a chunk over the host: each leader's slice, at that leader.
void HierarchicalCollectives::reduce_to_leaders(const Chunk& chunk, Span whole, Span slice, ReduceOp op) {
  if (all_lead(chunk)) {
    within_host({.kind = OpKind::reduce_scatter, .op = op}, part(chunk, whole), slice);
  } else if (levels_.local) {
    for (int i = 0; i < chunk.leaders; ++i) {
      const auto values = slice_of(chunk, whole, i);
      within_host({.kind = OpKind::reduce, .op = op, .peer = i}, values, values);
    }
  }
}

// Distributes the leaders' slices to all ranks of the host.
void HierarchicalCollectives::gather_from_leaders(const Chunk& chunk, Span slice, Span whole) {
  if (all_lead(chunk)) {
    within_host({.kind = OpKind::allgather}, slice, part(chunk, whole));
  } else if (levels_.local) {
    for (int i = 0; i < chunk.leaders; ++i) {
      const auto values = slice_of(chunk, whole, i);
      within_host({.kind = OpKind::broadcast, .peer = i}, values, values);
    }
  }
}

Span HierarchicalCollectives::own_slice(const Chunk& chunk, Span whole) const {
  return leads(chunk) ? slice_of(chunk, whole, levels_.local_rank()) : Span{nullptr, 0, whole.dtype};
}

Span HierarchicalCollectives::slot_for(const Chunk& chunk, std::size_t number, DType dtype) {
  auto& slot = slots_[number % slots_.size()];
  const auto bytes = chunk.slice() * size_of(dtype);
  if (slot.size() < bytes) slot.resize(bytes);
  return {slot.data(), chunk.slice(), dtype};
}

Span HierarchicalCollectives::scratch(std::size_t count, DType dtype) {
  if (scratch_.size() < count * size_of(dtype)) scratch_.resize(count * size_of(dtype));
  return {scratch_.data(), count, dtype};
}

void HierarchicalCollectives::within_host(Operation operation, ConstSpan input, Span output) {
  operation.dtype = output.dtype;
  operation.count = std::min(input.count, output.count);
  levels_.local->execute({{operation, input, output, {}, nullptr}, local_sequence_++, whole_milliseconds(deadline_)});
}

// A task for a rail. Its sequence number is taken now, so that the order of calls is the rail's order.
Rail::Task HierarchicalCollectives::between_hosts(Operation operation, ConstSpan input, Span output) {
  operation.dtype = output.dtype;
  operation.count = std::min(input.count, output.count);
  return [operation, sequence = rail_sequence_++, input, output, deadline = deadline_](Transport& rail) {
    rail.execute({{operation, input, output, {}, nullptr}, sequence, whole_milliseconds(deadline)});
  };
}

}  // namespace ddprun::comm
