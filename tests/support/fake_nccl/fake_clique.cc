#include "tests/support/fake_nccl/fake_clique.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "worker/comm/reduce/reduce_kernels.h"

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

// Returns the values that a rank contributes. 16-bit floats are rounded after a multiplication too, as NCCL does.
Bytes input_values(const Call& call, std::size_t offset) {
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

template <class CollectiveCalls>
Bytes reduced(const CollectiveCalls& calls, std::size_t offset) {
  const auto& first = calls.front()->call;
  auto sum = input_values(first, offset);
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    const auto values = input_values(calls[rank]->call, offset);
    comm::reduce(first.op, first.type, sum.data(), sum.data(), values.data(), first.count);
  }
  comm::finish_reduction(first.op, {sum.data(), first.count, first.type}, static_cast<int>(calls.size()));
  return sum;
}

void copy_to(const Bytes& values, void* output, std::size_t offset = 0) {
  if (!values.empty()) std::memcpy(static_cast<std::byte*>(output) + offset, values.data(), values.size());
}

}  // namespace

Clique::Clique(int size) : ranks_(static_cast<std::size_t>(size)) {}

void Clique::join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].joined = true;
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
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.joined; });
}

void Clique::issue(int rank, const std::vector<Call>& calls) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].issued.push_back(calls);
}

bool Clique::idle(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].issued.empty();
}

bool Clique::uses(const void* memory) const {
  const std::lock_guard lock(mutex_);
  for (const auto& rank : ranks_)
    for (const auto& calls : rank.issued)
      for (const auto& call : calls)
        if (call.input == memory || call.output == memory) return true;
  return false;
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
  self.issued.pop_front();
  changed_.notify_all();
}

void Clique::abort(int rank) {
  std::unique_lock lock(mutex_);
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  self.aborted = self.issued.size();
  withdraw(rank);
  changed_.notify_all();
}

// The rank's memory is not accessed from now on.
void Clique::withdraw(int rank) {
  for (auto& [number, calls] : collectives_) calls[static_cast<std::size_t>(rank)] = nullptr;
  for (auto& [ends, channel] : channels_) {
    if (ends.first == rank) channel.sends.clear();
    if (ends.second == rank) channel.receives.clear();
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
    auto& channel = channels_[{rank, call.peer}];
    channel.sends.push_back(posted);
    match(channel);
  } else if (call.kind == OpKind::recv) {
    auto& channel = channels_[{call.peer, rank}];
    channel.receives.push_back(posted);
    match(channel);
  } else {
    add_to_collective(rank, posted);
  }
  return posted;
}

void Clique::match(Channel& channel) {
  while (!channel.sends.empty() && !channel.receives.empty()) {
    auto &send = *channel.sends.front(), &receive = *channel.receives.front();
    if (send.call.count != receive.call.count || send.call.type != receive.call.type) return;
    if (const auto bytes = bytes_of(send.call); bytes > 0) std::memcpy(receive.call.output, send.call.input, bytes);
    send.done = receive.done = true;
    channel.sends.pop_front();
    channel.receives.pop_front();
    changed_.notify_all();
  }
}

void Clique::add_to_collective(int rank, const PostedCall& posted) {
  const auto number = ranks_[static_cast<std::size_t>(rank)].next++;
  auto& calls = collectives_[number];
  calls.resize(ranks_.size());
  calls[static_cast<std::size_t>(rank)] = posted;
  if (!std::all_of(calls.begin(), calls.end(), [](const auto& each) { return each != nullptr; })) return;
  if (!agree(calls)) return;
  execute(calls);
  for (const auto& each : calls) each->done = true;
  collectives_.erase(number);
  changed_.notify_all();
}

bool Clique::agree(const CollectiveCalls& calls) {
  const auto& first = calls.front()->call;
  return std::all_of(calls.begin(), calls.end(), [&](const auto& each) {
    const auto& call = each->call;
    return call.kind == first.kind && call.count == first.count && call.type == first.type &&
           (!reduces(call.kind) || call.op == first.op) && (!rooted(call.kind) || call.peer == first.peer);
  });
}

// Computes all results before it writes any, since outputs may be inputs.
void Clique::execute(const CollectiveCalls& calls) {
  const auto& first = calls.front()->call;
  const auto root = static_cast<std::size_t>(std::max(first.peer, 0));
  switch (first.kind) {
    case OpKind::allreduce: {
      const auto sum = reduced(calls, 0);
      for (const auto& each : calls) copy_to(sum, each->call.output);
      return;
    }
    case OpKind::reduce:
      return copy_to(reduced(calls, 0), calls[root]->call.output);
    case OpKind::broadcast: {
      const auto values = input_values(calls[root]->call, 0);
      for (const auto& each : calls) copy_to(values, each->call.output);
      return;
    }
    case OpKind::allgather: {
      std::vector<Bytes> parts;
      for (const auto& each : calls) parts.push_back(input_values(each->call, 0));
      for (const auto& each : calls) {
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
          copy_to(parts[rank], each->call.output, rank * bytes_of(first));
        }
      }
      return;
    }
    default: {  // reduce_scatter
      std::vector<Bytes> parts;
      for (std::size_t rank = 0; rank < calls.size(); ++rank) parts.push_back(reduced(calls, rank * bytes_of(first)));
      for (std::size_t rank = 0; rank < calls.size(); ++rank) copy_to(parts[rank], calls[rank]->call.output);
    }
  }
}

}  // namespace ddprun::testing::fake_nccl
