#include "ddprun/worker/comm/backends/gloo/gloo_group.h"

#include <cstdlib>
#include <deque>
#include <mutex>
#include <string_view>
#include <vector>

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/gloo/batch_threads.h"
#include "ddprun/worker/comm/backends/gloo/gloo_collectives.h"
#include "ddprun/worker/comm/backends/gloo/gloo_version.h"
#include "ddprun/worker/comm/backends/gloo/mesh_context.h"
#include "ddprun/worker/comm/backends/local/self_group.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "ddprun/worker/comm/operations/composed.h"

namespace ddprun::comm {
namespace {

// PyTorch's word for Gloo's transport. Of this Gloo's others none has the unbound buffers that its current collectives
// are made of: ibverbs throws at the first one.
void expect_tcp() {
  const char* const wanted = std::getenv("GLOO_DEVICE_TRANSPORT");
  if (!wanted || !*wanted || std::string_view(wanted) == "TCP") return;
  throw make_error(
      Errc::unsupported,
      "GLOO_DEVICE_TRANSPORT={}: this build's Gloo {} carries collectives over TCP alone (over InfiniBand, "
      "name its IP interface in GLOO_SOCKET_IFNAME)",
      wanted, gloo_version());
}

std::shared_ptr<::gloo::transport::tcp::Device> make_device(const std::string& address) {
  expect_tcp();
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  // The device starts a thread. Woken by a socket whose lock a sender holds, it looks again and again until that one is
  // done: in the sender's place on its processor, that is until the kernel's next tick, some milliseconds.
  const BlockedSignals blocked;
  const BatchThreads batch;
  try {
    return std::dynamic_pointer_cast<::gloo::transport::tcp::Device>(::gloo::transport::tcp::CreateDevice(attributes));
  } catch (const std::exception& error) {
    throw make_error(Errc::usage, "{} is no address of this host: {}", address, error.what());
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
    auto& collectives = take_collectives();
    execute_with(collectives, collective);
    const std::lock_guard lock(mutex_);  // after a failure nobody gets them: Gloo may be writing there
    idle_.push_back(&collectives);
  }

  std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) override {
    const bool sending = operation.kind == OpKind::send;
    // Gloo refuses to receive into a buffer of no size from anybody: it gets one, and none of it is used.
    const bool nothing = memory.bytes() == 0;
    auto buffer = context_->createUnboundBuffer(nothing ? &unused_ : memory.data, nothing ? 1 : memory.bytes());
    const auto slot = transfer_slot(operation);
    if (sending) {
      buffer->send(operation.peer, slot, 0, memory.bytes());
    } else if (operation.peer == any_source) {
      buffer->recv(others(), slot, 0, memory.bytes());
    } else {
      buffer->recv(operation.peer, slot, 0, memory.bytes());
    }
    return std::make_unique<GlooTransfer>(std::move(buffer), sending);
  }

  void interrupt() noexcept override { context_->interrupt(); }

 private:
  GlooCollectives& take_collectives() {
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

  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int r = 0; r < context_->size; ++r) {
      if (r != context_->rank) ranks.push_back(r);
    }
    return ranks;
  }

  std::shared_ptr<::gloo::transport::tcp::Device> device_;  // until the context has it
  std::shared_ptr<MeshContext> context_;
  const Links links_;
  const int concurrency_;
  const bool checked_;
  std::byte unused_{};
  std::mutex mutex_;                         // guards what follows
  std::deque<GlooCollectives> collectives_;  // each for one operation at a time: they keep memory
  std::vector<GlooCollectives*> idle_;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GroupOptions& options, Links links) {
  return std::make_shared<GlooTransport>(options, links);
}

std::unique_ptr<ProcessGroup> make_gloo_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();  // Gloo's algorithms, and ours over it, begin at two ranks
  const auto factory = [&options](const RankLocations& locations) {
    auto reachable = options;
    reachable.config.local_address = address_for_peers(locations, options.rank);
    return make_gloo_transport(reachable, links_between(host_map(locations)));
  };
  return make_transport_group(factory, options, {"gloo", make_gloo_group});
}

}  // namespace ddprun::comm
