#include "worker/comm/backends/nccl/nccl_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "worker/comm/backends/nccl/call_plan.h"
#include "worker/comm/backends/nccl/channels.h"
#include "worker/comm/backends/nccl/communicator.h"
#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/backends/nccl/device_memory.h"
#include "worker/comm/backends/nccl/nccl_types.h"
#include "worker/comm/backends/nccl/rank_device.h"
#include "worker/comm/backends/nccl/ring_traffic.h"
#include "worker/comm/backends/nccl/shrink.h"
#include "worker/comm/backends/nccl/unique_ids.h"
#include "worker/comm/bootstrap/await_ranks.h"
#include "worker/comm/bootstrap/host_evidence.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/health/operation_log.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds memory_bound(60);  // the limit for the device to clear memory
constexpr std::chrono::microseconds copy_poll(50);
constexpr std::chrono::seconds linger_bound(1);  // the limit for messages that are not delivered when this rank leaves

// A number of the host that the device copies: 1 once operations may have been cancelled. REQUIRES: the device is
// current where it is made.
class CancelFlag {
 public:
  explicit CancelFlag(int device) : device_(device), memory_(device, sizeof(float)), copied_(device) { store(0); }

  void set() noexcept { store(1); }
  // Queues a copy. REQUIRES: the device is current.
  void copy_to(float* on_device, cudaStream_t stream) {
    check_cuda(api().cudaMemcpyAsync(on_device, memory_.get(), sizeof(float), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync", device_);
    copied_.record(stream);
    has_copies_ = true;
  }
  // Waits for the copies, whose source this is, or for their failure.
  void await_copies(Deadline deadline) const noexcept {
    while (has_copies_ && api().cudaEventQuery(copied_.get()) == cudaErrorNotReady && !deadline.expired())
      std::this_thread::sleep_for(copy_poll);
  }

 private:
  void store(float value) noexcept { std::atomic_ref(*static_cast<float*>(memory_.get())).store(value); }

  const int device_;
  const PinnedMemory memory_;
  Event copied_;
  bool has_copies_ = false;
};

// This is not nested in the transport, because clang rejects an optional of a nested class with initialized members.
struct OnDevice {
  explicit OnDevice(int device) : placeholder(device, 1), stream(device), earlier(device), cancelled(device) {}

  DeviceMemory placeholder;  // reduced by a barrier
  Stream stream;
  Event earlier;  // marks the end of the earlier work of the stream that a call names
  CancelFlag cancelled;
};

// The communicator may end before the buffer.
RegisteredBuffer device_buffer(int device, std::size_t bytes, const std::shared_ptr<Communicator>& communicator) {
  void* const memory = allocate_for_nccl(device, std::max<std::size_t>(bytes, 1));
  const auto free = [owner = std::weak_ptr(communicator)](std::byte* data) {
    if (const auto still_there = owner.lock()) still_there->remove_memory(data);
    api().ncclMemFree(data);
  };
  RegisteredBuffer buffer({static_cast<std::byte*>(memory), free}, bytes);
  communicator->add_memory(memory, std::max<std::size_t>(bytes, 1));
  return buffer;
}

class NcclTransport : public Transport, private NonblockingCollectives {
 public:
  NcclTransport(const GroupOptions& options, ChooseDevice choose_device, int ranks_per_id)
      : rank_info_{options.rank, options.size},
        ranks_per_id_(ranks_per_id),
        host_(options.config.host.empty() ? host_evidence() : options.config.host),
        choose_device_(std::move(choose_device)),
        connect_store_(options.connect_store),
        previous_group_(options.previous_group),
        channels_(options.rank, compares_calls(options.config), interrupted_) {}
  ~NcclTransport() override {
    leave();
    if (!started_.empty()) on_device_->cancelled.set();
    communicator_->close();  // before the resources of its calls are destroyed
    if (connected_) on_device_->cancelled.await_copies(Deadline::in(linger_bound));
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    const BlockedSignals blocked;  // NCCL starts threads
    device_ = choose_device_();
    const CurrentDevice current(device_);
    on_device_.emplace(device_);
    const auto parent = take_parent();
    const auto excluded = parent ? ranks_to_exclude(previous_group_->size, previous_group_->kept) : std::nullopt;
    const auto shrinkable_group = excluded && parent->communicator_->can_shrink() ? previous_group_->prefix : "";
    const auto devices =
        exchange_devices({shrinkable_group, host_, local_host_name(), bus_id_of(device_)}, store, prefix, deadline);
    traffic_.emplace(hosts_of(devices), rank_info_.rank);
    if (all_can_shrink(devices)) {
      communicator_->shrink(*parent->communicator_, *excluded, deadline);
      if (rank_info_.rank == 0)
        log::info("shrank the communicator of {} ranks to {}", previous_group_->size, rank_info_.size);
    } else {
      create_communicator(devices, store, prefix, deadline);
    }
    channels_.open(device_, connect_store_(), prefix);
    connected_ = true;
  }

  // A peer's last messages may take as long as its own departure, and the same again at the receiver.
  TransportTraits traits() const override {
    return {.backend = "nccl", .accepts_raw_calls = true, .linger_timeout = 2 * linger_bound};
  }

  void execute(const Collective& collective) override {
    const auto deadline = Deadline::in(collective.timeout);
    auto& one = started_.emplace_back();  // stays after a failure, since the device may still use its memory
    stop_on_failure([&] {
      begin(one, collective, deadline);
      if (!communicator_->await(*one.done, deadline)) throw std::runtime_error("timed out");
    });
    started_.pop_back();
  }

  // Collectives run on the caller's thread: it only enqueues work for the device and polls.
  NonblockingCollectives* nonblocking() override { return this; }
  void announce(const Collective&) noexcept override {}
  // Several collectives are on the stream at once, in the order of their calls, as many as the operation log keeps
  // apart. A failure to start is reported by test().
  bool start(const Collective& collective) override {
    if (started_.size() >= static_cast<std::size_t>(OperationLog::most_in_progress)) return false;
    auto& one = started_.emplace_back();
    try {
      begin(one, collective, Deadline::in(collective.timeout));
    } catch (const std::exception&) {
      one.failure = std::current_exception();
    }
    return true;
  }
  bool test(const Collective&, const Deadline& deadline) override {
    auto& oldest = started_.front();
    bool done = false;
    stop_on_failure([&] {
      if (oldest.failure) std::rethrow_exception(oldest.failure);
      done = communicator_->await(*oldest.done, deadline);
    });
    if (done) started_.pop_front();
    return done;
  }

  bool order(const Collective& collective, void* stream, float* cancelled) override {
    const auto found = std::ranges::find(started_, collective.sequence, &StartedCollective::sequence);
    if (found == started_.end() || found->failure) return false;
    const CurrentDevice current(device_);
    found->done->precede(static_cast<cudaStream_t>(stream));
    if (cancelled) on_device_->cancelled.copy_to(cancelled, static_cast<cudaStream_t>(stream));
    return true;
  }
  bool tests_at_once() const override { return true; }
  // The first call of CUDA by a thread makes a context on its device, which is the first one unless another is set.
  void begin_thread() const noexcept override { api().cudaSetDevice(device_); }

  RegisteredBuffer allocate(std::size_t bytes) override {
    const CurrentDevice current(device_);
    auto memory = device_buffer(device_, bytes, communicator_);
    check_cuda(api().cudaMemsetAsync(memory.data(), 0, bytes, on_device_->stream.get()), "cudaMemsetAsync", device_);
    Event cleared(device_);
    cleared.record(on_device_->stream);
    if (!communicator_->await(cleared, Deadline::in(memory_bound))) throw Error(Errc::io, "CUDA does not clear memory");
    return memory;
  }

  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    if (operation.kind == OpKind::send) bytes_sent_ += traffic_->of_message(operation.peer, memory.bytes());
    return channels_.start(operation, memory);
  }

  std::uint64_t bytes_sent() const override { return bytes_sent_; }

  // The device learns of it first: any thread that finds the group interrupted may cancel its operations.
  void interrupt() noexcept override {
    if (connected_) on_device_->cancelled.set();
    if (interrupted_.exchange(true)) return;
    channels_.stop();
    stop_device();
  }

 private:
  struct StartedCollective {
    std::uint64_t sequence = 0;
    std::optional<Event> done;
    std::optional<DeviceMemory> copy;  // the copy of an input that the output overwrites
    std::exception_ptr failure;
  };

  void leave() {
    if (interrupted_ || !connected_) return;
    const auto deadline = Deadline::in(linger_bound);
    communicator_->finish(deadline);
    channels_.finish(deadline);
  }

  // The memory of a collective that has failed is its caller's from then on.
  template <class Operation>
  void stop_on_failure(Operation operation) try {
    operation();
  } catch (const std::exception&) {
    stop_device();
    throw;
  }

  void stop_device() noexcept { communicator_->stop(connected_ ? &on_device_->stream : nullptr); }

  // The transport of the previous group, if any; it is destroyed once this one has connected.
  std::shared_ptr<NcclTransport> take_parent() const {
    return previous_group_
               ? std::dynamic_pointer_cast<NcclTransport>(std::exchange(previous_group_->transport, nullptr))
               : nullptr;
  }

  RankDevices exchange_devices(const RankDevice& own, Store& store, const std::string& prefix,
                               Deadline deadline) const {
    RankDevices devices;
    for (const auto& text :
         exchange(store, prefix + "arrived/", rank_info_.rank, rank_info_.size, encode(own), interrupted_, deadline))
      devices.push_back(decode_rank_device(text));
    return devices;
  }

  // Whether ranks may share a device depends on NCCL's version and settings; if NCCL refuses, the error names the
  // device.
  void create_communicator(const RankDevices& devices, Store& store, const std::string& prefix, Deadline deadline) {
    try {
      auto ids = agree_on_ids(store, prefix, rank_info_, device_, ranks_per_id_, interrupted_, deadline);
      communicator_->connect(device_, std::move(ids), rank_info_.rank, rank_info_.size, deadline);
    } catch (const Error& error) {
      const auto shared = describe_shared_device(devices);
      if (error.code() != Errc::usage || shared.empty()) throw;
      throw make_error(Errc::usage,
                       "{}, but NCCL needs one for each rank: select it by cudaSetDevice or CUDA_VISIBLE_DEVICES ({})",
                       shared, error.what());
    }
  }

  void begin(StartedCollective& one, Collective collective, Deadline deadline) {
    const CurrentDevice current(device_);
    one.sequence = collective.sequence;
    follow(collective.options.after);
    record(collective.options.events.begun);
    if (collective.operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) {
      one.copy.emplace(device_, collective.input.bytes());
      copy(collective.input, one.copy->get());
      collective.input.data = one.copy->get();
    }
    const auto plan = plan_calls(collective, rank_info_);
    if (plan.own_input.count > 0) copy(plan.own_input, plan.own_output);
    if (!plan.calls.empty()) {
      communicator_->issue([&](ncclComm_t comm) { return enqueue(plan, collective.operation, comm); }, deadline);
    }
    for (const auto& call : plan.calls) bytes_sent_ += traffic_->of(call);
    record(collective.options.events.ended);
    one.done.emplace(device_).record(on_device_->stream);
  }

  void record(void* event) {
    if (event) record_event(event, on_device_->stream);
  }

  void follow(void* stream) {
    on_device_->earlier.record(static_cast<cudaStream_t>(stream));
    on_device_->earlier.precede(on_device_->stream);
  }

  void copy(ConstSpan from, void* to) {
    check_cuda(api().cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToDevice, on_device_->stream.get()),
               "cudaMemcpyAsync", device_);
  }

  // Enqueues one ncclGroup, so that no call waits for another. It is ended after a failure too, which is the result.
  NcclCall enqueue(const CallPlan& plan, const Operation& operation, ncclComm_t comm) const {
    std::deque<PremultipliedSum> sums;
    if (operation.reduces() && operation.op == ReduceOp::premultiplied_sum) {
      for (const auto& call : plan.calls) sums.emplace_back(operation.factor, call.dtype, comm, device_);
    }
    check_nccl(api().ncclGroupStart(), "ncclGroupStart", device_);
    std::optional<NcclCall> failure;
    for (std::size_t i = 0; i < plan.calls.size(); ++i) {
      const auto op = sums.empty() ? reduction_of(operation.op).value_or(ncclSum) : sums[i].get();
      const auto call = enqueue(plan.calls[i], op, comm);
      if (!failure && call.has_failed()) failure = call;
    }
    const NcclCall end{"ncclGroupEnd", api().ncclGroupEnd()};
    return failure.value_or(end);
  }

  NcclCall enqueue(const PlannedCall& call, ncclRedOp_t op, ncclComm_t comm) const {
    const auto& [kind, input, output, count, dtype, peer] = call;
    const auto type = type_of(dtype);
    const auto stream = on_device_->stream.get();
    void* const placeholder = on_device_->placeholder.get();
    switch (kind) {
      case OpKind::allreduce:
        return {"ncclAllReduce", api().ncclAllReduce(input, output, count, type, op, comm, stream)};
      case OpKind::reduce:
        return {"ncclReduce", api().ncclReduce(input, output, count, type, op, peer, comm, stream)};
      case OpKind::broadcast:
        return {"ncclBroadcast", api().ncclBroadcast(input, output, count, type, peer, comm, stream)};
      case OpKind::allgather:
        return {"ncclAllGather", api().ncclAllGather(input, output, count, type, comm, stream)};
      case OpKind::reduce_scatter:
        return {"ncclReduceScatter", api().ncclReduceScatter(input, output, count, type, op, comm, stream)};
      case OpKind::barrier:
        return {"ncclAllReduce", api().ncclAllReduce(placeholder, placeholder, 1, ncclUint8, ncclMax, comm, stream)};
      case OpKind::send:
        return {"ncclSend", api().ncclSend(input, count, type, peer, comm, stream)};
      case OpKind::recv:
        return {"ncclRecv", api().ncclRecv(output, count, type, peer, comm, stream)};
      default:
        throw make_error(Errc::internal, "NCCL has no {}", name_of(kind));
    }
  }

  const RankInfo rank_info_;
  const int ranks_per_id_;
  const std::string host_;
  const ChooseDevice choose_device_;
  const std::function<std::shared_ptr<Store>()> connect_store_;
  const std::shared_ptr<PreviousGroup> previous_group_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> connected_ = false;
  int device_ = 0;                         // set by connect()
  std::deque<StartedCollective> started_;  // the group calls from one thread at a time
  std::optional<OnDevice> on_device_;
  std::optional<RingTraffic> traffic_;  // set once connected
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  Channels channels_;
  // Memory that was allocated refers to it, and may exist longer.
  const std::shared_ptr<Communicator> communicator_ = std::make_shared<Communicator>(interrupted_);
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options, ChooseDevice choose_device,
                                               int ranks_per_id) {
  return std::make_shared<NcclTransport>(options, std::move(choose_device), ranks_per_id);
}

}  // namespace ddprun::comm
