#include "worker/comm/backends/mpi/mpi_transfers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>

#include "common/error.h"
#include "worker/comm/backends/mpi/message_tags.h"
#include "worker/comm/backends/mpi/polling.h"

namespace ddprun::comm {
namespace {

void expect_size(const Operation& operation, Span memory) {
  if (memory.bytes() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw make_error(Errc::unsupported, "{}: MPI takes 2 GiB at most", describe(operation));
}

template <class Poll>
void poll_until(Poll poll, const MpiGroupContext& context, const Operation& operation,
                std::chrono::milliseconds timeout) {
  const auto deadline = Deadline::in(timeout);
  Polling polling(context.library.waiters());
  while (!poll()) {
    if (context.interrupted) throw std::runtime_error("interrupted");
    if (deadline.expired()) throw make_error(Errc::timeout, "{} has not finished", describe(operation));
    polling.pause();
  }
}

}  // namespace

class MpiTransfers::Send : public Transfer {
 public:
  Send(const MpiGroupContext& context, const Operation& operation, Span memory, std::uint64_t number)
      : context_(context), operation_(operation), uses_(std::make_unique<Used>()) {
    const auto bytes = memory.bytes();
    auto& header = uses_->header;
    header = {.number = number, .operation = operation, .data = {}};
    const bool is_inline = bytes <= inline_bytes;
    if (is_inline && bytes > 0) std::memcpy(header.data, memory.data, bytes);
    const auto& mpi = context.library.calls();
    const auto header_bytes = offsetof(Header, data) + (is_inline ? bytes : 0);
    check(mpi.call<&MpiFunctions::send>(context.communicator, &header, static_cast<int>(header_bytes), operation.peer,
                                        MessageTags::header, &uses_->requests[0]));
    count_ = 1;
    if (is_inline) return;
    const void* data = memory.data;
    if (!(uses_->memory = context.memory.find(data, bytes))) {
      data = std::memcpy(uses_->copy.reserve(bytes), data, bytes);
    }
    count_ = 2;
    check(mpi.call<&MpiFunctions::send>(context.communicator, data, static_cast<int>(bytes), operation.peer,
                                        MessageTags::data(number, context.library.tag_upper_bound()),
                                        &uses_->requests[1]));
  }

  ~Send() override {
    if (finished_) return;
    context_.library.abandon();
    [[maybe_unused]] auto* const left_to_mpi = uses_.release();
  }

  void wait(std::chrono::milliseconds timeout) override {
    poll_until([this] { return poll(); }, context_, operation_, timeout);
    finished_ = true;
  }
  int source() const override { return -1; }

 private:
  // The memory that MPI uses until the send has finished.
  struct Used {
    Header header;
    std::array<MpiFunctions::Request, 2> requests{};
    MpiMemory::Shared memory;
    Staging copy;
  };

  bool poll() {
    const std::lock_guard lock(context_.library.mutex());
    bool finished = false;
    check(context_.library.calls().call<&MpiFunctions::test_all>(count_, uses_->requests.data(), &finished));
    return finished;
  }
  void check(int code) const { context_.library.check(code, "a send over MPI"); }

  const MpiGroupContext& context_;
  const Operation operation_;
  std::unique_ptr<Used> uses_;
  int count_ = 0;
  bool finished_ = false;
};

class MpiTransfers::Receive : public Transfer {
 public:
  Receive(MpiTransfers& owner, const Operation& operation, Span memory)
      : owner_(owner), operation_(operation), memory_(memory) {}

  ~Receive() override {
    const std::lock_guard lock(owner_.context_.library.mutex());
    owner_.receives_.remove(this);
    if (!uses_ || done_) return;
    owner_.context_.library.abandon();
    [[maybe_unused]] auto* const left_to_mpi = uses_.release();
  }

  void wait(std::chrono::milliseconds timeout) override {
    poll_until([this] { return poll(); }, owner_.context_, operation_, timeout);
    if (uses_ && uses_->copied) std::memcpy(memory_.data, uses_->copied, memory_.bytes());
  }
  int source() const override { return source_; }

  // REQUIRES the library's mutex.
  void take(const Message& message) {
    source_ = message.source;
    sent_ = message.header.operation;
    if (differs()) return;
    const auto bytes = memory_.bytes();
    if (bytes <= inline_bytes) {
      if (bytes > 0) std::memcpy(memory_.data, message.header.data, bytes);
      done_ = true;
      return;
    }
    const auto& context = owner_.context_;
    uses_ = std::make_unique<Used>();
    void* data = memory_.data;
    if (!(uses_->memory = context.memory.find(data, bytes))) data = uses_->copied = uses_->copy.reserve(bytes);
    context.library.check(
        context.library.calls().call<&MpiFunctions::receive>(
            context.communicator, data, static_cast<int>(bytes), source_,
            MessageTags::data(message.header.number, context.library.tag_upper_bound()), &uses_->request),
        "a receive over MPI");
  }

  const Operation& operation() const { return operation_; }

 private:
  // The memory that MPI uses until the receive has finished.
  struct Used {
    MpiFunctions::Request request{};
    MpiMemory::Shared memory;
    Staging copy;
    std::byte* copied = nullptr;
  };

  bool poll() {
    const std::lock_guard lock(owner_.context_.library.mutex());
    if (done_) return true;
    owner_.progress();
    if (differs())
      throw make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", source_, describe(*sent_),
                       owner_.context_.rank_info.rank, describe(operation_));
    if (!uses_) return done_;
    const auto& library = owner_.context_.library;
    library.check(library.calls().call<&MpiFunctions::test_all>(1, &uses_->request, &done_), "a receive over MPI");
    return done_;
  }

  bool differs() const { return sent_ && (sent_->dtype != operation_.dtype || sent_->count != operation_.count); }

  MpiTransfers& owner_;
  const Operation operation_;
  std::optional<Operation> sent_;  // that of the rank whose message it takes
  const Span memory_;
  std::unique_ptr<Used> uses_;  // for a message whose data does not fit into its header
  int source_ = -1;
  bool done_ = false;
};

MpiTransfers::MpiTransfers(const MpiGroupContext& context)
    : context_(context),
      incoming_(std::make_unique<Header>()),
      sent_(static_cast<std::size_t>(context.rank_info.size)) {
  const std::lock_guard lock(context_.library.mutex());
  listen();
}

MpiTransfers::~MpiTransfers() {
  const std::lock_guard lock(context_.library.mutex());
  if (!context_.interrupted && context_.library.calls().call<&MpiFunctions::cancel_receive>(&listening_) == 0) return;
  [[maybe_unused]] auto* const left_to_mpi = incoming_.release();
  context_.library.abandon();
}

std::unique_ptr<Transfer> MpiTransfers::start(const Operation& operation, Span memory) {
  if (context_.interrupted) throw std::runtime_error("interrupted");
  expect_size(operation, memory);
  if (operation.kind == OpKind::send) {
    const std::lock_guard lock(context_.library.mutex());
    return std::make_unique<Send>(context_, operation, memory, sent_[static_cast<std::size_t>(operation.peer)]++);
  }
  auto receive = std::make_unique<Receive>(*this, operation, memory);
  const std::lock_guard lock(context_.library.mutex());
  if (!take_waiting(*receive)) receives_.push_back(receive.get());
  return receive;
}

void MpiTransfers::listen() {
  context_.library.check(
      context_.library.calls().call<&MpiFunctions::receive>(context_.communicator, incoming_.get(), sizeof(Header), -1,
                                                            MessageTags::header, &listening_),
      "a receive over MPI");
}

// Takes the headers that have arrived.
void MpiTransfers::progress() {
  while (true) {
    bool arrived = false;
    int source = 0, bytes = 0;
    context_.library.check(
        context_.library.calls().call<&MpiFunctions::test_receive>(&listening_, &arrived, &source, &bytes),
        "a receive over MPI");
    if (!arrived) return;
    const Message message{*incoming_, source};
    listen();
    const auto receive =
        std::find_if(receives_.begin(), receives_.end(), [&](const Receive* each) { return matches(*each, message); });
    if (receive == receives_.end()) {
      waiting_.push_back(message);
      continue;
    }
    auto& taker = **receive;
    receives_.erase(receive);
    taker.take(message);
  }
}

bool MpiTransfers::take_waiting(Receive& receive) {
  const auto message =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Message& each) { return matches(receive, each); });
  if (message == waiting_.end()) return false;
  receive.take(*message);
  waiting_.erase(message);
  return true;
}

bool MpiTransfers::matches(const Receive& receive, const Message& message) const {
  const auto& operation = receive.operation();
  return (operation.peer == any_source || operation.peer == message.source) &&
         operation.tag == message.header.operation.tag;
}

}  // namespace ddprun::comm
