#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/backends/gloo/interruptible_context.h"
#include "ddprun/worker/comm/backends/gloo/loop_wakeups.h"

namespace ddprun::comm {

// Gloo's context with a connection to every other rank, made through our store: rank a writes the address of its end
// for rank b under "<prefix>address/<a>/<b>". A rank so reads what concerns it in one request, where Gloo's own
// rendezvous has everybody read everything.
class MeshContext : public ::gloo::Context {
 public:
  MeshContext(int own_rank, int ranks) : ::gloo::Context(own_rank, ranks) {}
  ~MeshContext() override;

  // Throws Errc::timeout naming the ranks that did not come, Errc::unreachable naming one that could not be connected,
  // Errc::aborted after interrupt().
  void connect(std::shared_ptr<::gloo::transport::tcp::Device> device, Store& store, const std::string& prefix,
               Deadline deadline);
  // Fails every pending and later transfer, whatever thread waits for it, and a connect() under way.
  void interrupt() noexcept;

 private:
  void close_pairs() noexcept;

  std::shared_ptr<InterruptibleContext> interruptible_;  // as transportContext_
  std::atomic<bool> interrupted_ = false;
  std::optional<LoopWakeups> turns_;
  std::atomic<bool> has_pairs_ = false;  // and the above with them
};

}  // namespace ddprun::comm
