#include "worker/trainer/recovery/tensor_transfer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/rounding.h"
#include "worker/comm/pending_work.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t in_flight = 4;  // messages to or from one rank
constexpr int transfer_tag = 0;

// How the bytes of all tensors travel. The same at every rank.
struct Plan {
  std::vector<int> senders;
  std::size_t chunk_bytes;  // of a message
  bool copies;              // into registered memory, which a receiver on the same host reads
};

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

  std::size_t total() const { return total_; }
  void divide(std::size_t chunk_bytes) { chunk_bytes_ = chunk_bytes; }
  std::size_t count() const { return divide_up(total_, chunk_bytes_); }
  std::size_t bytes_of(std::size_t chunk) const { return std::min(chunk_bytes_, total_ - chunk * chunk_bytes_); }

  // Calls visit(memory, bytes) for each part of the chunk, in order.
  template <class Visit>
  void for_each_part(std::size_t chunk, Visit visit) const {
    std::size_t at = chunk * chunk_bytes_;
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
  std::size_t chunk_bytes_ = 1;
};

// Memory for chunks, which messages use one after the other.
class Buffers {
 public:
  // group: the one whose ranks read the memory; null if none does.
  Buffers(ProcessGroup* group, std::size_t bytes) : group_(group), bytes_(bytes) {}

  std::shared_ptr<std::byte> take() {
    if (idle_.empty()) group_ ? add_registered() : add();
    auto buffer = std::move(idle_.back());
    idle_.pop_back();
    return buffer;
  }
  void give_back(std::shared_ptr<std::byte> buffer) { idle_.push_back(std::move(buffer)); }

 private:
  // Tensors have memory that was used before, which costs no page faults.
  void add() {
    const auto memory = std::make_shared<Tensor>(Tensor::empty({static_cast<std::int64_t>(bytes_)}, DType::uint8));
    idle_.emplace_back(memory, static_cast<std::byte*>(memory->raw()));
  }
  // Other ranks map each allocation by itself.
  void add_registered() {
    const auto memory = std::make_shared<RegisteredBuffer>(group_->allocate(in_flight * bytes_));
    for (std::size_t i = 0; i < in_flight; ++i) idle_.emplace_back(memory, memory->data() + i * bytes_);
  }

  ProcessGroup* const group_;
  const std::size_t bytes_;
  std::vector<std::shared_ptr<std::byte>> idle_;
};

// A chunk on its way: in a buffer if several tensors have parts of it, or if it is to be copied.
class Message {
 public:
  Message(const Chunks& chunks, std::size_t chunk, Buffers& buffers, bool copies)
      : chunks_(chunks), chunk_(chunk), buffers_(buffers) {
    std::byte* memory = nullptr;
    int parts = 0;
    chunks.for_each_part(chunk, [&](std::byte* part, std::size_t) {
      memory = part;
      ++parts;
    });
    if (parts > 1 || copies) {
      packed_ = buffers.take();
      memory = packed_.get();
    }
    span_ = {memory, chunks.bytes_of(chunk), DType::uint8};
  }
  ~Message() {
    if (packed_) buffers_.give_back(std::move(packed_));
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void pack() {
    if (packed_) move([](std::byte* part, std::byte* packed) { return std::pair(packed, part); });
  }
  void unpack() {
    if (packed_) move([](std::byte* part, std::byte* packed) { return std::pair(part, packed); });
  }

  Span span() const { return span_; }
  PendingWork& work() { return work_; }

 private:
  // Order of a part and of its place in the packed memory: destination, source.
  template <class Order>
  void move(Order order) {
    auto* packed = packed_.get();
    chunks_.for_each_part(chunk_, [&](std::byte* part, std::size_t bytes) {
      const auto [to, from] = order(part, packed);
      std::memcpy(to, from, bytes);
      packed += bytes;
    });
  }

  const Chunks& chunks_;
  const std::size_t chunk_;
  Buffers& buffers_;
  std::shared_ptr<std::byte> packed_;
  Span span_;
  PendingWork work_;  // the tensors and the buffers outlive it
};

void send_share(const Chunks& chunks, ProcessGroup& group, const std::vector<int>& lagging, const Plan& plan,
                std::size_t share) {
  Buffers buffers(plan.copies ? &group : nullptr, plan.chunk_bytes);
  std::deque<Message> messages;
  for (auto chunk = share; chunk < chunks.count(); chunk += plan.senders.size())
    for (const int rank : lagging) {
      if (messages.size() == in_flight * lagging.size()) {
        messages.front().work().wait();
        messages.pop_front();
      }
      auto& message = messages.emplace_back(chunks, chunk, buffers, plan.copies);
      message.pack();
      message.work().start(group.send(message.span(), rank, transfer_tag));
    }
  for (auto& message : messages) message.work().wait();
}

void receive(const Chunks& chunks, ProcessGroup& group, const Plan& plan) {
  Buffers buffers(nullptr, plan.chunk_bytes);
  std::deque<Message> messages;
  const auto take_oldest = [&] {
    messages.front().work().wait();
    messages.front().unpack();
    messages.pop_front();
  };
  for (std::size_t chunk = 0; chunk < chunks.count(); ++chunk) {
    if (messages.size() == in_flight * plan.senders.size()) take_oldest();
    auto& message = messages.emplace_back(chunks, chunk, buffers, false);
    message.work().start(group.recv(message.span(), plan.senders[chunk % plan.senders.size()], transfer_tag));
  }
  while (!messages.empty()) take_oldest();
}

// Messages are large enough that their fixed costs do not count. Through shared memory those in flight still fit into a
// processor's cache, and one sender is as fast as the receiver; the other ranks go on. Over a network, new connections
// are slow at first, so that all senders have a share of a small state too.
Plan plan_for(std::size_t bytes, const ProcessGroup& group, std::vector<int> senders) {
  constexpr std::size_t smallest = std::size_t{64} << 10, largest = std::size_t{4} << 20;
  constexpr std::size_t largest_in_cache = std::size_t{512} << 10;
  if (group.backend() == "shm") senders.resize(1);
  const bool copies = group.backend() == "shm" || group.backend() == "hierarchical";
  const auto wanted = std::clamp(bytes / (2 * senders.size()), smallest, largest);
  return {.senders = std::move(senders),
          .chunk_bytes = copies ? std::min(wanted, largest_in_cache) : wanted,
          .copies = copies};
}

}  // namespace

void transfer_tensors(const std::vector<Tensor>& tensors, ProcessGroup& group, const std::vector<int>& lagging) {
  const auto lags = [&](int rank) { return std::ranges::count(lagging, rank) > 0; };
  std::vector<int> senders;
  for (int rank = 0; rank < group.size(); ++rank)
    if (!lags(rank)) senders.push_back(rank);
  Chunks chunks(tensors);
  const auto plan = plan_for(chunks.total(), group, senders);
  chunks.divide(plan.chunk_bytes);
  const auto own = std::ranges::find(plan.senders, group.rank());
  if (lags(group.rank()))
    receive(chunks, group, plan);
  else if (own != plan.senders.end())
    send_share(chunks, group, lagging, plan, static_cast<std::size_t>(own - plan.senders.begin()));
  if (lags(group.rank()))
    for (const auto& tensor : tensors)
      if (tensor.bytes() > 0) tensor.storage()->bump_version();
}

}  // namespace ddprun::trainer
