#include "worker/trainer/recovery/tensor_transfer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "worker/comm/pending_work.h"

namespace ddprun::trainer {
namespace {

// A message is large enough that its fixed costs do not count, and those in flight use little memory.
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;
constexpr std::size_t in_flight = 4;  // messages to or from one rank
constexpr int transfer_tag = 0;

// The bytes of all tensors in order, in chunks of the same size but the last.
class Chunks {
 public:
  explicit Chunks(const std::vector<Tensor>& tensors) {
    for (const auto& tensor : tensors) {
      if (tensor.bytes() == 0) continue;
      tensors_.push_back({static_cast<std::byte*>(Tensor(tensor).raw()), tensor.bytes(), total_});
      total_ += tensor.bytes();
    }
  }

  std::size_t count() const { return (total_ + chunk_bytes - 1) / chunk_bytes; }
  std::size_t bytes_of(std::size_t chunk) const { return std::min(chunk_bytes, total_ - chunk * chunk_bytes); }

  // Calls visit(memory, bytes) for each part of the chunk, in order.
  template <class Visit>
  void for_each_part(std::size_t chunk, Visit visit) const {
    std::size_t at = chunk * chunk_bytes;
    const std::size_t end = at + bytes_of(chunk);
    for (auto tensor = containing(at); at < end; ++tensor) {
      const auto offset = at - tensor->begin;
      const auto bytes = std::min(tensor->bytes - offset, end - at);
      visit(tensor->memory + offset, bytes);
      at += bytes;
    }
  }

 private:
  struct Range {
    std::byte* memory;
    std::size_t bytes;
    std::size_t begin;  // in the sequence of all bytes
  };

  std::vector<Range>::const_iterator containing(std::size_t at) const {
    return std::prev(std::ranges::upper_bound(tensors_, at, {}, &Range::begin));
  }

  std::vector<Range> tensors_;
  std::size_t total_ = 0;
};

// A chunk on its way: in memory of its own if several tensors have parts of it.
class Message {
 public:
  Message(const Chunks& chunks, std::size_t chunk) : chunks_(chunks), chunk_(chunk) {
    std::byte* memory = nullptr;
    int parts = 0;
    chunks.for_each_part(chunk, [&](std::byte* part, std::size_t) {
      memory = part;
      ++parts;
    });
    if (parts > 1) {
      packed_.resize(chunks.bytes_of(chunk));
      memory = packed_.data();
    }
    span_ = {memory, chunks.bytes_of(chunk), DType::uint8};
  }

  void pack() {
    if (!packed_.empty()) move([](std::byte* part, std::byte* packed) { return std::pair(packed, part); });
  }
  void unpack() {
    if (!packed_.empty()) move([](std::byte* part, std::byte* packed) { return std::pair(part, packed); });
  }

  Span span() const { return span_; }
  PendingWork& work() { return work_; }

 private:
  // Order of a part and of its place in the packed memory: destination, source.
  template <class Order>
  void move(Order order) {
    auto* packed = packed_.data();
    chunks_.for_each_part(chunk_, [&](std::byte* part, std::size_t bytes) {
      const auto [to, from] = order(part, packed);
      std::memcpy(to, from, bytes);
      packed += bytes;
    });
  }

  const Chunks& chunks_;
  const std::size_t chunk_;
  std::vector<std::byte> packed_;
  Span span_;
  PendingWork work_;  // ends before the memory
};

void send_share(const Chunks& chunks, ProcessGroup& group, const std::vector<int>& lagging, std::size_t share,
                std::size_t shares) {
  std::deque<Message> messages;
  for (auto chunk = share; chunk < chunks.count(); chunk += shares)
    for (const int rank : lagging) {
      if (messages.size() == in_flight * lagging.size()) {
        messages.front().work().wait();
        messages.pop_front();
      }
      auto& message = messages.emplace_back(chunks, chunk);
      message.pack();
      message.work().start(group.send(message.span(), rank, transfer_tag));
    }
  for (auto& message : messages) message.work().wait();
}

void receive(const Chunks& chunks, ProcessGroup& group, const std::vector<int>& senders) {
  std::deque<Message> messages;
  const auto take_oldest = [&] {
    messages.front().work().wait();
    messages.front().unpack();
    messages.pop_front();
  };
  for (std::size_t chunk = 0; chunk < chunks.count(); ++chunk) {
    if (messages.size() == in_flight * senders.size()) take_oldest();
    auto& message = messages.emplace_back(chunks, chunk);
    message.work().start(group.recv(message.span(), senders[chunk % senders.size()], transfer_tag));
  }
  while (!messages.empty()) take_oldest();
}

// Messages through shared memory pass a small buffer whose two ends wake each other: 1.5 GB came at 0.15 GB/s.
bool sends_messages_slowly(const ProcessGroup& group) {
  return group.backend() == "shm" || group.backend() == "hierarchical";
}

void broadcast(const std::vector<Tensor>& tensors, ProcessGroup& group, int source) {
  std::vector<Span> spans;
  for (const auto& tensor : tensors)
    if (tensor.bytes() > 0) spans.push_back({Tensor(tensor).raw(), tensor.bytes(), DType::uint8});
  if (!spans.empty()) group.broadcast_coalesced(spans, source, {.blocking = true});
}

void send_or_receive(const std::vector<Tensor>& tensors, ProcessGroup& group, const std::vector<int>& lagging,
                     const std::vector<int>& senders) {
  const Chunks chunks(tensors);
  const auto own = std::ranges::find(senders, group.rank());
  if (own == senders.end())
    receive(chunks, group, senders);
  else
    send_share(chunks, group, lagging, static_cast<std::size_t>(own - senders.begin()), senders.size());
}

}  // namespace

void transfer_tensors(const std::vector<Tensor>& tensors, ProcessGroup& group, const std::vector<int>& lagging) {
  const auto lags = [&](int rank) { return std::ranges::count(lagging, rank) > 0; };
  std::vector<int> senders;
  for (int rank = 0; rank < group.size(); ++rank)
    if (!lags(rank)) senders.push_back(rank);
  if (sends_messages_slowly(group))
    broadcast(tensors, group, senders.front());
  else
    send_or_receive(tensors, group, lagging, senders);
  if (lags(group.rank()))
    for (const auto& tensor : tensors)
      if (tensor.bytes() > 0) tensor.storage()->bump_version();
}

}  // namespace ddprun::trainer
