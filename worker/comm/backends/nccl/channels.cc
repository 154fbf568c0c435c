#include "ddprun/worker/comm/backends/nccl/channels.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/nccl/communicator.h"
#include "ddprun/worker/comm/backends/nccl/cuda_resources.h"
#include "ddprun/worker/comm/backends/nccl/nccl_names.h"
#include "ddprun/worker/comm/backends/nccl/unique_id.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds look(20);  // at the interruption, and at the store

// What a message is, for the receiver to compare.
struct Label {
  std::uint64_t count = 0;
  std::uint64_t dtype = 0;
  friend bool operator==(const Label&, const Label&) = default;
};

// Of a channel. Not nested in its class: clang refuses an optional of a nested class whose members have initialisers.
struct OnDevice {
  DeviceMemory nothing{1};  // what a message of no elements moves
  DeviceMemory label{sizeof(Label)};
  PinnedMemory pinned{sizeof(Label)};
  Label* const host_label = new (pinned.get()) Label();  // on its way to the device or from it
  Stream stream;
};

}  // namespace

ChannelName channel_of(const Operation& operation, int rank) {
  if (operation.kind == OpKind::send) return {rank, operation.peer, operation.tag};
  return {operation.peer, rank, operation.tag};
}

void ChannelCount::note(const ChannelName& name) {
  const std::lock_guard lock(mutex_);
  if (names_.contains(name)) return;
  if (names_.size() == most) {
    throw make_error(Errc::unsupported,
                     "the nccl back end has a communicator for each sender, receiver and tag, and {} at most: from "
                     "rank {} to rank {} with tag {} would be one too many",
                     most, name.sender, name.receiver, name.tag);
  }
  names_.insert(name);
}

struct Channels::Content {
  int rank;
  bool checked;
  const std::atomic<bool>& interrupted;
  int device = 0;
  std::shared_ptr<Store> store{};
  std::string prefix{};
  std::mutex mutex{};  // guards the map; a channel stays where it is
  std::map<ChannelName, Channel> channels{};
};

// Messages begin in the order of their numbers, whichever threads wait for them.
class Channels::Channel {
 public:
  Channel(Content& content, const ChannelName& name)
      : content_(content), name_(name), communicator_(content.interrupted) {}

  // At once, also while the channel is being formed.
  std::uint64_t take_number() { return taken_++; }

  void execute(std::uint64_t number, Span memory, Deadline deadline) {
    if (!communicator_.await(*begin(number, memory, deadline), deadline)) throw std::runtime_error("timed out");
  }

  void finish(Deadline deadline) noexcept { communicator_.finish(deadline); }
  void stop() noexcept { communicator_.stop(); }

 private:
  std::unique_ptr<Event> begin(std::uint64_t number, Span memory, Deadline deadline) {
    std::unique_lock lock(mutex_);
    while (begun_ != number) {
      changed_.wait_for(lock, look);
      if (content_.interrupted) throw std::runtime_error("interrupted");
      if (deadline.expired()) throw std::runtime_error("timed out");
    }
    const CurrentDevice here(content_.device);
    if (!on_device_) connect(deadline);
    if (content_.checked) sending() ? send_label(memory, deadline) : expect_label(memory, deadline);
    communicator_.issue([&](ncclComm_t comm) { return enqueue(memory, comm); }, deadline);
    auto done = reached();
    ++begun_;
    changed_.notify_all();
    return done;
  }

  std::unique_ptr<Event> reached() const {
    auto event = std::make_unique<Event>();
    event->record(on_device_->stream);
    return event;
  }

  void send_label(Span memory, Deadline deadline) {
    *on_device_->host_label = label_of(memory);
    move_label(on_device_->label.get(), on_device_->host_label, cudaMemcpyHostToDevice, deadline);
    communicator_.issue([&](ncclComm_t comm) { return enqueue(label_on_device(), comm); }, deadline);
  }

  void expect_label(Span memory, Deadline deadline) {
    communicator_.issue([&](ncclComm_t comm) { return enqueue(label_on_device(), comm); }, deadline);
    move_label(on_device_->host_label, on_device_->label.get(), cudaMemcpyDeviceToHost, deadline);
    const auto sent = *on_device_->host_label;
    if (sent == label_of(memory)) return;
    const Operation send{.kind = OpKind::send,
                         .dtype = static_cast<DType>(sent.dtype),
                         .count = static_cast<std::size_t>(sent.count),
                         .peer = name_.receiver,
                         .tag = name_.tag};
    const Operation recv{
        .kind = OpKind::recv, .dtype = memory.dtype, .count = memory.count, .peer = name_.sender, .tag = name_.tag};
    throw make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", name_.sender, describe(send), name_.receiver,
                     describe(recv));
  }

  // Returns when it is there.
  void move_label(void* to, const void* from, cudaMemcpyKind way, Deadline deadline) {
    check_cuda(cudaMemcpyAsync(to, from, sizeof(Label), way, on_device_->stream.get()), "copying what a message is");
    if (!communicator_.await(*reached(), deadline)) throw std::runtime_error("timed out");
  }

  static Label label_of(Span memory) { return {memory.count, static_cast<std::uint64_t>(memory.dtype)}; }
  Span label_on_device() const { return {on_device_->label.get(), sizeof(Label), DType::uint8}; }

  // The sender is rank 0 of the two.
  void connect(Deadline deadline) {
    const BlockedSignals blocked;  // NCCL starts threads
    on_device_.emplace();
    const auto key = fmt::format("{}channel/{}-{}-{}", content_.prefix, name_.sender, name_.receiver, name_.tag);
    ncclUniqueId id;
    if (sending()) {
      id = make_unique_id();
      content_.store->set(key, text_of(id), deadline);
    } else {
      id = unique_id_from(await_id(key, deadline));
    }
    communicator_.connect(id, sending() ? 0 : 1, 2, deadline);
  }

  // Others use the store meanwhile: it is asked, and not waited for.
  std::string await_id(const std::string& key, Deadline deadline) const {
    while (!content_.store->check({key}, deadline)) {
      if (content_.interrupted) throw std::runtime_error("interrupted");
      std::this_thread::sleep_for(look);
    }
    return content_.store->get(key, deadline);
  }

  ncclResult_t enqueue(Span memory, ncclComm_t comm) const {
    if (memory.count == 0) memory = {on_device_->nothing.get(), 1, DType::uint8};
    const auto type = type_of(memory.dtype);
    if (sending()) return ncclSend(memory.data, memory.count, type, 1, comm, on_device_->stream.get());
    return ncclRecv(memory.data, memory.count, type, 0, comm, on_device_->stream.get());
  }

  bool sending() const { return name_.sender == content_.rank; }

  const Content& content_;
  const ChannelName name_;
  std::atomic<std::uint64_t> taken_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::uint64_t begun_ = 0;
  std::optional<OnDevice> on_device_;
  Communicator communicator_;  // aborted before its stream goes
};

class Channels::ChannelTransfer : public Transfer {
 public:
  ChannelTransfer(Channel& channel, Span memory, int source)
      : channel_(channel), number_(channel.take_number()), memory_(memory), source_(source) {}

  void wait(milliseconds timeout) override { channel_.execute(number_, memory_, Deadline::in(timeout)); }
  int source() const override { return source_; }

 private:
  Channel& channel_;
  const std::uint64_t number_;
  const Span memory_;
  const int source_;
};

Channels::Channels(int rank, bool checked, const std::atomic<bool>& interrupted)
    : content_(new Content{rank, checked, interrupted}) {}
Channels::~Channels() = default;

void Channels::open(int device, std::shared_ptr<Store> store, const std::string& prefix) {
  content_->device = device;
  content_->store = std::move(store);
  content_->prefix = prefix;
}

std::unique_ptr<Transfer> Channels::start(const Operation& operation, Span memory) {
  const auto name = channel_of(operation, content_->rank);
  const int source = operation.kind == OpKind::recv ? operation.peer : -1;
  const std::lock_guard lock(content_->mutex);
  auto& channel = content_->channels.try_emplace(name, *content_, name).first->second;
  return std::make_unique<ChannelTransfer>(channel, memory, source);
}

void Channels::stop() noexcept {
  const std::lock_guard lock(content_->mutex);
  for (auto& [name, channel] : content_->channels) channel.stop();
}

void Channels::finish(Deadline deadline) noexcept {
  for (auto& [name, channel] : content_->channels) channel.finish(deadline);
}

}  // namespace ddprun::comm
