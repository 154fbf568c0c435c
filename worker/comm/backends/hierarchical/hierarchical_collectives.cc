#include "ddprun/worker/comm/backends/hierarchical/hierarchical_collectives.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

Span part(Span span, std::size_t first, std::size_t count) {
  return {static_cast<std::byte*>(span.data) + first * size_of(span.dtype), count, span.dtype};
}
ConstSpan part(ConstSpan span, std::size_t first, std::size_t count) {
  return {static_cast<const std::byte*>(span.data) + first * size_of(span.dtype), count, span.dtype};
}
Span part(const Chunk& piece, Span whole) {
  return part(whole, piece.first, piece.count);
}
Span slice_of(const Chunk& piece, Span whole, int leader) {
  return part(whole, piece.first + static_cast<std::size_t>(leader) * piece.slice(), piece.slice());
}

// What the levels compute: an average is divided at the end, once.
ReduceOp combining(ReduceOp op) {
  return op == ReduceOp::average ? ReduceOp::sum : op;
}

milliseconds remaining(const Deadline& deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining());
  return std::clamp(left, milliseconds(1), milliseconds(std::chrono::hours(24 * 365)));
}

}  // namespace

bool HierarchicalCollectives::know(const Operation& operation) const {
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
    throw std::runtime_error(error.what());  // what names ranks, names those of one level
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
      throw make_error(Errc::internal, "{} has no form in two levels", describe(collective.operation));
  }
}

void HierarchicalCollectives::allreduce(const Collective& collective) {
  const auto& whole = collective.output;
  const auto op = collective.operation.op;
  const int ranks = levels_.hosts.ranks();
  const auto pieces = chunks_of_buffer(whole.count, size_of(whole.dtype), levels_.leaders);
  const auto memory = [&](const Chunk& piece, std::size_t number) {
    return all_lead(piece) ? slot_for(piece, number, whole.dtype) : own_slice(piece, whole);
  };
  const auto up = [&](const Chunk& piece, std::size_t number) -> Rail::Task {
    const auto slice = memory(piece, number);
    combine(piece, whole, slice, combining(op));
    if (!leads(piece)) return {};
    return [sum = between_hosts({.kind = OpKind::allreduce, .op = combining(op)}, slice, slice), slice, op,
            ranks](Transport& rail) {
      sum(rail);
      finish_reduction(op, slice, ranks);
    };
  };
  pipeline(pieces, up, [&](const Chunk& piece, std::size_t number) { spread(piece, memory(piece, number), whole); });
}

void HierarchicalCollectives::reduce(const Collective& collective) {
  const auto dtype = collective.operation.dtype;
  const auto op = collective.operation.op;
  const auto count = collective.operation.count;
  const int root = collective.operation.peer;
  const int leader = levels_.hosts.local_rank_of(root);
  const bool leads = levels_.local_rank() == leader;
  const bool is_root = levels_.rank == root;
  const Span buffer{const_cast<void*>(collective.input.data), count, dtype};  // written at the root alone
  const auto up = [&](const Chunk& piece, std::size_t number) -> Rail::Task {
    auto values = part(piece, is_root ? collective.output : buffer);
    if (leads && !is_root) {
      const auto slot = slot_for(piece, number, dtype);
      std::memcpy(slot.data, values.data, values.bytes());
      values = slot;
    }
    if (levels_.local) within_host({.kind = OpKind::reduce, .op = combining(op), .peer = leader}, values, values);
    if (!leads) return {};
    return between_hosts({.kind = OpKind::reduce, .op = combining(op), .peer = levels_.hosts.host_of(root)}, values,
                         values);
  };
  pipeline(chunks_of_buffer(count, size_of(dtype), 1), up, [](const Chunk&, std::size_t) {});
  if (is_root) finish_reduction(op, collective.output, levels_.hosts.ranks());
}

void HierarchicalCollectives::broadcast(const Collective& collective) {
  const auto& whole = collective.output;
  const int root = collective.operation.peer;
  const int root_host = levels_.hosts.host_of(root);
  const bool source = levels_.on_the_host_of(root);
  const auto memory = [&](const Chunk& piece, std::size_t number) {
    return all_lead(piece) && !source ? slot_for(piece, number, whole.dtype) : own_slice(piece, whole);
  };
  const auto up = [&](const Chunk& piece, std::size_t number) -> Rail::Task {
    if (source && levels_.local) {
      const auto values = part(piece, whole);
      within_host({.kind = OpKind::broadcast, .peer = levels_.hosts.local_rank_of(root)}, values, values);
    }
    if (!leads(piece)) return {};
    const auto slice = memory(piece, number);
    return between_hosts({.kind = OpKind::broadcast, .peer = root_host}, slice, slice);
  };
  const auto down = [&](const Chunk& piece, std::size_t number) {
    if (!source) spread(piece, memory(piece, number), whole);
  };
  pipeline(chunks_of_buffer(whole.count, size_of(whole.dtype), levels_.leaders), up, down);
}

// The rail brings every host's block of this place; meanwhile, and then host by host, the ranks put them together.
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
    within_host({.kind = OpKind::reduce_scatter, .op = combining(op)}, part(collective.input, host * width, width),
                part(sums, host * output.count, output.count));
  }
  between_hosts({.kind = OpKind::reduce_scatter, .op = combining(op)}, sums, output)(levels_.rail->transport());
  finish_reduction(op, output, levels_.hosts.ranks());
}

void HierarchicalCollectives::barrier() {
  if (levels_.local) within_host({}, {}, {});
  if (levels_.rail && levels_.local_rank() == 0) between_hosts({}, {}, {})(levels_.rail->transport());
  if (levels_.local) within_host({}, {}, {});
}

// up(piece, number) brings a piece to where its rail takes over, and returns what that is to do; down follows when it
// is done. A single piece does without the other thread.
template <class Up, class Down>
void HierarchicalCollectives::pipeline(const std::vector<Chunk>& pieces, Up up, Down down) {
  std::vector<std::uint64_t> tasks(pieces.size());
  for (std::size_t step = 0; step < pieces.size() + lag; ++step) {
    if (step < pieces.size()) {
      if (auto task = up(pieces[step], step)) {
        if (pieces.size() == 1) {
          task(levels_.rail->transport());
        } else {
          tasks[step] = levels_.rail->post(std::move(task));
        }
      }
    }
    if (step < lag) continue;
    const auto number = step - lag;
    if (tasks[number] > 0) levels_.rail->await(tasks[number]);
    down(pieces[number], number);
  }
}

// Sums the piece over the host: each leader's slice, at that leader.
void HierarchicalCollectives::combine(const Chunk& piece, Span whole, Span slice, ReduceOp op) {
  if (all_lead(piece)) {
    within_host({.kind = OpKind::reduce_scatter, .op = op}, part(piece, whole), slice);
  } else if (levels_.local) {
    for (int i = 0; i < piece.leaders; ++i) {
      const auto values = slice_of(piece, whole, i);
      within_host({.kind = OpKind::reduce, .op = op, .peer = i}, values, values);
    }
  }
}

// Gives every rank of the host the leaders' slices.
void HierarchicalCollectives::spread(const Chunk& piece, Span slice, Span whole) {
  if (all_lead(piece)) {
    within_host({.kind = OpKind::allgather}, slice, part(piece, whole));
  } else if (levels_.local) {
    for (int i = 0; i < piece.leaders; ++i) {
      const auto values = slice_of(piece, whole, i);
      within_host({.kind = OpKind::broadcast, .peer = i}, values, values);
    }
  }
}

Span HierarchicalCollectives::own_slice(const Chunk& piece, Span whole) const {
  return leads(piece) ? slice_of(piece, whole, levels_.local_rank()) : Span{nullptr, 0, whole.dtype};
}

Span HierarchicalCollectives::slot_for(const Chunk& piece, std::size_t number, DType dtype) {
  auto& slot = slots_[number % slots_.size()];
  const auto bytes = piece.slice() * size_of(dtype);
  if (slot.size() < bytes) slot.resize(bytes);
  return {slot.data(), piece.slice(), dtype};
}

Span HierarchicalCollectives::scratch(std::size_t count, DType dtype) {
  if (scratch_.size() < count * size_of(dtype)) scratch_.resize(count * size_of(dtype));
  return {scratch_.data(), count, dtype};
}

void HierarchicalCollectives::within_host(Operation operation, ConstSpan input, Span output) {
  operation.dtype = output.dtype;
  operation.count = std::min(input.count, output.count);
  levels_.local->execute({{operation, input, output, {}, nullptr}, local_steps_++, remaining(deadline_)});
}

// What a rail is to do, with its place in the rail's order taken now.
Rail::Task HierarchicalCollectives::between_hosts(Operation operation, ConstSpan input, Span output) {
  operation.dtype = output.dtype;
  operation.count = std::min(input.count, output.count);
  return [operation, step = rail_steps_++, input, output, deadline = deadline_](Transport& rail) {
    rail.execute({{operation, input, output, {}, nullptr}, step, remaining(deadline)});
  };
}

}  // namespace ddprun::comm
