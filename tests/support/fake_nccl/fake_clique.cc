#include "tests/support/fake_nccl/fake_clique.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "ddprun/worker/comm/reduce/reduce_kernels.h"

namespace ddprun::testing::fake_nccl {
namespace {

using comm::OpKind;
using Bytes = std::vector<std::byte>;

bool reduces(OpKind kind) {
  return kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
}
bool rooted(OpKind kind) {
  return kind == OpKind::reduce || kind == OpKind::broadcast;
}

std::size_t bytes_of(const Call& call) {
  return call.count * size_of(call.type);
}

// What a rank gives to a reduction; 16-bit floats are rounded after the multiplication too, as NCCL does it.
Bytes given(const Call& call, std::size_t offset) {
  Bytes values(bytes_of(call));
  const ConstSpan input{static_cast<const std::byte*>(call.input) + offset, call.count, call.type};
  if (call.op != ReduceOp::premultiplied_sum) {
    if (!values.empty()) std::memcpy(values.data(), input.data, values.size());
    return values;
  }
  Bytes products(call.count * size_of(comm::prepared_type(call.type)));
  comm::prepare_reduction(call.factor, input, products.data());
  comm::finish_prepared(products.data(), {values.data(), call.count, call.type});
  return values;
}

template <class Meeting>
Bytes reduced(const Meeting& meeting, std::size_t offset) {
  const auto& first = meeting.front()->call;
  auto sum = given(first, offset);
  for (std::size_t rank = 1; rank < meeting.size(); ++rank) {
    const auto values = given(meeting[rank]->call, offset);
    comm::reduce(first.op, first.type, sum.data(), sum.data(), values.data(), first.count);
  }
  comm::finish_reduction(first.op, {sum.data(), first.count, first.type}, static_cast<int>(meeting.size()));
  return sum;
}

void put(const Bytes& values, void* output, std::size_t offset = 0) {
  if (!values.empty()) std::memcpy(static_cast<std::byte*>(output) + offset, values.data(), values.size());
}

}  // namespace

Clique::Clique(int size) : ranks_(static_cast<std::size_t>(size)) {}

void Clique::join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].here = true;
  ranks_[static_cast<std::size_t>(rank)].device = device;
}

bool Clique::shares_a_device() const {
  const std::lock_guard lock(mutex_);
  std::set<int> devices;
  for (const auto& rank : ranks_) devices.insert(rank.device);
  return devices.size() < ranks_.size();
}

bool Clique::complete() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.here; });
}

void Clique::issue(int rank) {
  const std::lock_guard lock(mutex_);
  ++ranks_[static_cast<std::size_t>(rank)].issued;
}

bool Clique::quiet(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].issued == 0;
}

void Clique::execute(int rank, const std::vector<Call>& calls) {
  std::unique_lock lock(mutex_);
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  std::vector<PostedCall> posted;
  for (const auto& call : calls) {
    if (self.aborted == 0) posted.push_back(post(rank, call));
  }
  const auto all_done = [&] {
    return std::all_of(posted.begin(), posted.end(), [](auto& each) { return each->done; });
  };
  changed_.wait(lock, [&] { return self.aborted > 0 || all_done(); });
  if (self.aborted > 0) --self.aborted;
  --self.issued;
  changed_.notify_all();
}

void Clique::abort(int rank) {
  std::unique_lock lock(mutex_);
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  self.aborted = self.issued;
  withdraw(rank);
  changed_.notify_all();
}

// Nobody may touch its memory from now on.
void Clique::withdraw(int rank) {
  for (auto& [number, meeting] : meetings_) meeting[static_cast<std::size_t>(rank)] = nullptr;
  for (auto& [ends, pipe] : pipes_) {
    if (ends.first == rank) pipe.sent.clear();
    if (ends.second == rank) pipe.awaited.clear();
  }
}

std::shared_ptr<Clique> Clique::without(const std::vector<int>& excluded) {
  const std::lock_guard lock(mutex_);
  auto& clique = shrunk_[excluded];
  if (!clique) clique = std::make_shared<Clique>(size() - static_cast<int>(excluded.size()));
  return clique;
}

Clique::PostedCall Clique::post(int rank, const Call& call) {
  auto posted = std::make_shared<Posted>(Posted{call});
  if (call.kind == OpKind::send) {
    auto& pipe = pipes_[{rank, call.peer}];
    pipe.sent.push_back(posted);
    match(pipe);
  } else if (call.kind == OpKind::recv) {
    auto& pipe = pipes_[{call.peer, rank}];
    pipe.awaited.push_back(posted);
    match(pipe);
  } else {
    meet(rank, posted);
  }
  return posted;
}

void Clique::match(Pipe& pipe) {
  while (!pipe.sent.empty() && !pipe.awaited.empty()) {
    auto &sent = *pipe.sent.front(), &awaited = *pipe.awaited.front();
    if (sent.call.count != awaited.call.count || sent.call.type != awaited.call.type) return;
    if (const auto bytes = bytes_of(sent.call); bytes > 0) std::memcpy(awaited.call.output, sent.call.input, bytes);
    sent.done = awaited.done = true;
    pipe.sent.pop_front();
    pipe.awaited.pop_front();
    changed_.notify_all();
  }
}

void Clique::meet(int rank, const PostedCall& posted) {
  const auto number = ranks_[static_cast<std::size_t>(rank)].next++;
  auto& meeting = meetings_[number];
  meeting.resize(ranks_.size());
  meeting[static_cast<std::size_t>(rank)] = posted;
  if (!std::all_of(meeting.begin(), meeting.end(), [](const auto& each) { return each != nullptr; })) return;
  if (!agree(meeting)) return;
  execute(meeting);
  for (const auto& each : meeting) each->done = true;
  meetings_.erase(number);
  changed_.notify_all();
}

bool Clique::agree(const Meeting& meeting) {
  const auto& first = meeting.front()->call;
  return std::all_of(meeting.begin(), meeting.end(), [&](const auto& each) {
    const auto& call = each->call;
    return call.kind == first.kind && call.count == first.count && call.type == first.type &&
           (!reduces(call.kind) || call.op == first.op) && (!rooted(call.kind) || call.peer == first.peer);
  });
}

// All that is to be written is known before any of it is, since outputs may be inputs.
void Clique::execute(const Meeting& meeting) {
  const auto& first = meeting.front()->call;
  const auto root = static_cast<std::size_t>(std::max(first.peer, 0));
  switch (first.kind) {
    case OpKind::allreduce: {
      const auto sum = reduced(meeting, 0);
      for (const auto& each : meeting) put(sum, each->call.output);
      return;
    }
    case OpKind::reduce:
      return put(reduced(meeting, 0), meeting[root]->call.output);
    case OpKind::broadcast: {
      const auto values = given(meeting[root]->call, 0);
      for (const auto& each : meeting) put(values, each->call.output);
      return;
    }
    case OpKind::allgather: {
      std::vector<Bytes> parts;
      for (const auto& each : meeting) parts.push_back(given(each->call, 0));
      for (const auto& each : meeting) {
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
          put(parts[rank], each->call.output, rank * bytes_of(first));
        }
      }
      return;
    }
    default: {  // reduce_scatter
      std::vector<Bytes> parts;
      for (std::size_t rank = 0; rank < meeting.size(); ++rank)
        parts.push_back(reduced(meeting, rank * bytes_of(first)));
      for (std::size_t rank = 0; rank < meeting.size(); ++rank) put(parts[rank], meeting[rank]->call.output);
    }
  }
}

}  // namespace ddprun::testing::fake_nccl
