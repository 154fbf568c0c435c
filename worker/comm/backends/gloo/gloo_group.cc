#include "worker/comm/backends/gloo/gloo_group.h"

#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <string_view>
#include <vector>

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "worker/comm/backends/gloo/event_loop.h"
#include "worker/comm/backends/gloo/gloo_collectives.h"
#include "worker/comm/backends/gloo/gloo_version.h"
#include "worker/comm/backends/gloo/mesh_context.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/execution/transport_group.h"
#include "worker/comm/operations/composed.h"

namespace ddprun::comm {
namespace {

// GLOO_DEVICE_TRANSPORT selects Gloo's transport in PyTorch. Gloo's other transports lack the unbound buffers that its
// current collectives need: ibverbs throws at the first one.
void expect_tcp() {
  const char* const wanted = std::getenv("GLOO_DEVICE_TRANSPORT");
  if (!wanted || !*wanted || std::string_view(wanted) == "TCP") return;
  throw make_error(
      Errc::unsupported,
      "GLOO_DEVICE_TRANSPORT={}: Gloo {} of this build supports collectives over TCP only (for InfiniBand, "
      "name its IP interface in GLOO_SOCKET_IFNAME)",
      wanted, gloo_version());
}

// libtorch_cpu shows the functions of a newer Gloo. In a program that links it before ours, they take the place of
// ours, whose objects have another layout: a collective would then hang or run out of memory.
void expect_own_library() {
  const auto function = &::gloo::transport::tcp::CreateDevice;
  Dl_info found;
  if (::dladdr(reinterpret_cast<void*>(function), &found) == 0 || !found.dli_fname) return;
  if (std::string_view(found.dli_fname).find("libtorch") == std::string_view::npos) return;
  throw make_error(
      Errc::unsupported,
      "this program got its Gloo from {}, which has another version inside than ddprun was built with: link "
      "ddprun's libraries before PyTorch's (ddprun::torch does so), or use back end shm on one host",
      found.dli_fname);
}

// Threads that this thread starts during its lifetime are scheduled as SCHED_BATCH: when they wake up they do not
// preempt the running thread.
class BatchThreads {
 public:
  BatchThreads() {
    pthread_getschedparam(pthread_self(), &policy_, &parameters_);
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~BatchThreads() {
    if (policy_ == SCHED_OTHER) set(SCHED_OTHER);
  }
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;

 private:
  void set(int policy) { pthread_setschedparam(pthread_self(), policy, &parameters_); }

  int policy_ = SCHED_OTHER;
  sched_param parameters_{};
};

GlooDevice make_device(const std::string& address) {
  expect_tcp();
  expect_own_library();
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  // The device starts a loop thread. Woken by a socket whose lock a sender holds, it spins until the sender is done; if
  // it had preempted the sender, that would last until the kernel's next tick, some milliseconds.
  const BlockedSignals blocked;
  const BatchThreads batch;
  try {
    return create_device(attributes);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw make_error(Errc::usage, "{} is not an address of this host: {}", address, error.what());
  }
}

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer, bool sending)
      : buffer_(std::move(buffer)), sending_(sending) {}

  void wait(std::chrono::milliseconds timeout) override {
    if (sending_) {
      buffer_->waitSend(timeout);
    } else {
      buffer_->waitRecv(&source_, timeout);
    }
  }
  int source() const override { return source_; }

 private:
  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  const bool sending_;
  int source_ = -1;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(const GroupOptions& options, Links links)
      : device_(make_device(options.config.local_address)),
        context_(std::make_shared<MeshContext>(options.rank, options.size)),
        links_(links),
        concurrency_(options.config.concurrency),
        checked_(compares_calls(options.config)) {}

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    const BlockedSignals blocked;
    context_->connect(std::move(device_), store, prefix, deadline);
  }

  TransportTraits traits() const override { return {.backend = "gloo", .concurrency = concurrency_}; }

  void execute(const Collective& collective) override {
    auto& collectives = acquire();
    execute_with(collectives, collective);
    const std::lock_guard lock(mutex_);  // not after a failure: Gloo may still write to their memory
    idle_.push_back(&collectives);
  }

  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    const bool sending = operation.kind == OpKind::send;
    // Gloo refuses to receive from any source into an empty buffer, so an unused byte takes its place.
    const bool empty = memory.bytes() == 0;
    auto buffer = context_->createUnboundBuffer(empty ? &unused_ : memory.data, empty ? 1 : memory.bytes());
    const auto slot = transfer_slot(operation);
    if (sending) {
      buffer->send(operation.peer, slot, 0, memory.bytes());
    } else if (operation.peer == any_source) {
      buffer->recv(peers(), slot, 0, memory.bytes());
    } else {
      buffer->recv(operation.peer, slot, 0, memory.bytes());
    }
    return std::make_unique<GlooTransfer>(std::move(buffer), sending);
  }

  std::uint64_t bytes_sent() const override { return context_->bytes_sent(); }
  // A ring adds the parts of a buffer in different orders; the reduce-scatter's ring adds each rank's part in one.
  bool reduces_elements_alike(const Operation& operation) const override {
    return operation.kind == OpKind::reduce_scatter || (context_->size == 2 && commutes(operation.op));
  }
  void interrupt() noexcept override { context_->interrupt(); }

 private:
  GlooCollectives& acquire() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return collectives_.emplace_back(context_, links_);
    auto* const collectives = idle_.back();
    idle_.pop_back();
    return *collectives;
  }

  void execute_with(GlooCollectives& collectives, const Collective& collective) {
    if (checked_) collectives.compare_calls(collective);
    switch (collective.operation.kind) {
      case OpKind::allreduce:
        return collectives.allreduce(collective);
      case OpKind::reduce:
        return collectives.reduce(collective);
      case OpKind::broadcast:
        return collectives.broadcast(collective);
      case OpKind::allgather:
        if (collective.operation.unequal()) break;
        return collectives.allgather(collective);
      case OpKind::reduce_scatter:
        return collectives.reduce_scatter(collective);
      case OpKind::barrier:
        return collectives.barrier(collective);
      default:
        break;
    }
    compose_of_transfers(collective, {context_->rank, context_->size},
                         [this](const Operation& operation, Span memory) { return start_transfer(operation, memory); });
  }

  std::vector<int> peers() const {
    std::vector<int> ranks;
    for (int r = 0; r < context_->size; ++r) {
      if (r != context_->rank) ranks.push_back(r);
    }
    return ranks;
  }

  GlooDevice device_;  // held until it moves to the context
  std::shared_ptr<MeshContext> context_;
  const Links links_;
  const int concurrency_;
  const bool checked_;
  std::byte unused_{};
  std::mutex mutex_;                         // guards the rest
  std::deque<GlooCollectives> collectives_;  // one for each concurrent operation; reused for their memory
  std::vector<GlooCollectives*> idle_;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GroupOptions& options, Links links) {
  return std::make_shared<GlooTransport>(options, links);
}

std::unique_ptr<ProcessGroup> make_gloo_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();  // the algorithms need two ranks
  const auto factory = [&options](const RankLocations& locations) {
    auto reachable = options;
    reachable.config.local_address = address_for_peers(locations, options.rank);
    return make_gloo_transport(reachable, links_between(host_map(locations)));
  };
  return make_transport_group(factory, options, {"gloo", make_gloo_group});
}

}  // namespace ddprun::comm
