#include "ddprun/worker/comm/nccl/nccl_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/forming/await_ranks.h"
#include "ddprun/worker/comm/nccl/call_plan.h"
#include "ddprun/worker/comm/nccl/channels.h"
#include "ddprun/worker/comm/nccl/communicator.h"
#include "ddprun/worker/comm/nccl/cuda_resources.h"
#include "ddprun/worker/comm/nccl/nccl_names.h"
#include "ddprun/worker/comm/nccl/shrinking.h"
#include "ddprun/worker/comm/nccl/unique_id.h"
#include "ddprun/worker/comm/transport/heritage.h"
#include "ddprun/worker/comm/transport/quiet_thread.h"
#include "ddprun/worker/comm/watch/ledger.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::seconds farewell(1);  // for what is on its way to others when this rank leaves

class NcclTransport : public BasicTransport {
 public:
  // The device is the current one.
  NcclTransport(const GroupOptions& options, int device)
      : seat_{options.rank, options.size},
        device_(device),
        connect_store_(options.connect_store),
        heritage_(options.heritage),
        nothing_(1),
        channels_(options.rank, device, interrupted_),
        communicator_(interrupted_) {}
  ~NcclTransport() override {
    if (interrupted_) return;
    const auto deadline = Deadline::in(farewell);
    communicator_.finish(deadline);
    channels_.finish(deadline);
  }

  std::string_view backend() const override { return "nccl"; }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    const BlockedSignals blocked;  // NCCL starts threads
    const CurrentDevice here(device_);
    const auto parent = take_parent();
    const auto excluded = parent ? ranks_to_exclude(heritage_->size, heritage_->kept) : std::nullopt;
    const auto offer = excluded && parent->communicator_.can_shrink() ? heritage_->prefix : "";
    if (all_say(offer, store, prefix, deadline)) {
      communicator_.shrink(parent->communicator_, *excluded, deadline);
      if (seat_.rank == 0) log::info("the communicator of {} ranks shrank to {}", heritage_->size, seat_.size);
    } else {
      communicator_.connect(meet(store, prefix, deadline), seat_.rank, seat_.size, deadline);
    }
    channels_.open(connect_store_(), prefix);
  }

  // In the caller's thread: all that it does is to give the device work and to look.
  bool runs_anywhere() const override { return true; }
  bool takes_every_call() const override { return true; }

  void carry_out(const Collective& collective) override {
    const auto deadline = Deadline::in(collective.timeout);
    auto& one = posted_.emplace_back();  // after a failure it stays, as memory cannot be freed under the device
    begin(one, collective, deadline);
    if (!communicator_.await(*one.done, deadline)) throw std::runtime_error("timed out");
    posted_.pop_back();
  }

  // Several are on the stream at once, in the order of their calls, as many as the ledger keeps apart. What fails as it
  // begins fails as it is finished.
  bool post(const Collective& collective) override {
    if (posted_.size() >= static_cast<std::size_t>(Ledger::most_in_progress)) return false;
    auto& one = posted_.emplace_back();
    try {
      begin(one, collective, Deadline::in(collective.timeout));
    } catch (const std::exception&) {
      one.failure = std::current_exception();
    }
    return true;
  }
  bool finish_posted(const Collective&, const Deadline& deadline) override {
    auto& oldest = posted_.front();
    if (oldest.failure) std::rethrow_exception(oldest.failure);
    if (!communicator_.await(*oldest.done, deadline)) return false;
    posted_.pop_front();
    return true;
  }

  std::unique_ptr<Transfer> start(const Operation& operation, Span memory) override {
    return channels_.start(operation, memory);
  }

  // Also ends what the device is in: its memory is its owner's again.
  void interrupt() noexcept override {
    if (interrupted_.exchange(true)) return;
    communicator_.stop();
    channels_.stop();
  }

 private:
  struct UnderWay {
    std::optional<Event> done;
    std::optional<DeviceMemory> copy;  // of an input that the output takes the place of
    std::exception_ptr failure;
  };

  // Of the group before this one, if any; it goes as this one has connected.
  std::shared_ptr<NcclTransport> take_parent() const {
    return heritage_ ? std::dynamic_pointer_cast<NcclTransport>(std::exchange(heritage_->transport, nullptr)) : nullptr;
  }

  // Ranks shrink together or not at all. Empty: this one cannot.
  bool all_say(const std::string& offer, Store& store, const std::string& prefix, Deadline deadline) const {
    const auto offers = exchange(store, prefix + "former/", seat_.rank, seat_.size, offer, interrupted_, deadline);
    return !offer.empty() && std::all_of(offers.begin(), offers.end(), [&](const auto& each) { return each == offer; });
  }

  ncclUniqueId meet(Store& store, const std::string& prefix, Deadline deadline) const {
    if (seat_.rank > 0) {
      return unique_id_from(await_ranks(store, {{0, prefix + "nccl"}}, seat_.size, interrupted_, deadline).front());
    }
    const auto id = make_unique_id();
    store.set(prefix + "nccl", text_of(id), deadline);
    return id;
  }

  void begin(UnderWay& one, Collective collective, Deadline deadline) {
    const CurrentDevice here(device_);
    if (collective.operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) {
      one.copy.emplace(collective.input.bytes());
      copy(collective.input, one.copy->get());
      collective.input.data = one.copy->get();
    }
    const auto plan = plan_calls(collective, seat_);
    if (plan.own_input.count > 0) copy(plan.own_input, plan.own_output);
    if (!plan.calls.empty()) {
      communicator_.issue([&](ncclComm_t comm) { return enqueue(plan, collective.operation, comm); }, deadline);
    }
    one.done.emplace().record(stream_);
  }

  void copy(ConstSpan from, void* to) {
    check_cuda(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream_.get()),
               "copying on the device");
  }

  // As one group: none of the calls waits for another. It ends also after a failure, which counts.
  ncclResult_t enqueue(const CallPlan& plan, const Operation& operation, ncclComm_t comm) const {
    std::deque<PremultipliedSum> sums;
    if (operation.reduces() && operation.op == ReduceOp::premultiplied_sum) {
      for (const auto& call : plan.calls) sums.emplace_back(operation.factor, call.dtype, comm);
    }
    auto failure = ncclSuccess;
    check_nccl(ncclGroupStart(), "beginning a group of calls");
    for (std::size_t i = 0; i < plan.calls.size(); ++i) {
      const auto op = sums.empty() ? reduction_of(operation.op).value_or(ncclSum) : sums[i].get();
      const auto result = enqueue(plan.calls[i], op, comm);
      if (failure == ncclSuccess && result != ncclInProgress) failure = result;
    }
    const auto result = ncclGroupEnd();
    return failure == ncclSuccess ? result : failure;
  }

  ncclResult_t enqueue(const PlannedCall& call, ncclRedOp_t op, ncclComm_t comm) const {
    const auto& [kind, input, output, count, dtype, peer] = call;
    const auto type = type_of(dtype);
    const auto stream = stream_.get();
    switch (kind) {
      case OpKind::allreduce:
        return ncclAllReduce(input, output, count, type, op, comm, stream);
      case OpKind::reduce:
        return ncclReduce(input, output, count, type, op, peer, comm, stream);
      case OpKind::broadcast:
        return ncclBroadcast(input, output, count, type, peer, comm, stream);
      case OpKind::allgather:
        return ncclAllGather(input, output, count, type, comm, stream);
      case OpKind::reduce_scatter:
        return ncclReduceScatter(input, output, count, type, op, comm, stream);
      case OpKind::barrier:
        return ncclAllReduce(nothing_.get(), nothing_.get(), 1, ncclUint8, ncclMax, comm, stream);
      case OpKind::send:
        return ncclSend(input, count, type, peer, comm, stream);
      case OpKind::recv:
        return ncclRecv(output, count, type, peer, comm, stream);
      default:
        throw make_error(Errc::internal, "NCCL has no {}", name_of(kind));
    }
  }

  const Seat seat_;
  const int device_;
  const std::function<std::shared_ptr<Store>()> connect_store_;
  const std::shared_ptr<Heritage> heritage_;
  std::atomic<bool> interrupted_ = false;
  DeviceMemory nothing_;         // for a barrier
  std::deque<UnderWay> posted_;  // used by one thread at a time, as the group sees to
  Stream stream_;
  Channels channels_;
  Communicator communicator_;  // aborted before what its calls work with goes
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const GroupOptions& options, int device) {
  const CurrentDevice here(device);
  return std::make_shared<NcclTransport>(options, device);
}

}  // namespace ddprun::comm
