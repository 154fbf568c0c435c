#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gloo/context.h>

#include "common/deadline.h"
#include "rendezvous/store/store.h"
#include "worker/comm/backends/gloo/event_loop.h"
#include "worker/comm/backends/gloo/interruptible_context.h"
#include "worker/comm/backends/gloo/loop_wakeups.h"

namespace ddprun::comm {

// Gloo's context with a connection to every other rank. The ranks exchange addresses through the store: rank a writes
// that of its end for rank b under "<prefix>address/<a>/<b>", so that each rank reads only its own in one request; in
// Gloo's rendezvous every rank reads all of them. The nonce of a PeerProof precedes the address. Any thread may call
// connect() and interrupt().
class MeshContext : public ::gloo::Context {
 public:
  MeshContext(int own_rank, int ranks) : ::gloo::Context(own_rank, ranks) {}
  ~MeshContext() override;

  // Throws Errc::timeout naming the ranks that did not join, Errc::unreachable naming one that could not be connected,
  // Errc::aborted after interrupt().
  void connect(GlooDevice device, Store& store, const std::string& prefix, Deadline deadline);
  // REQUIRES: connected
  std::uint64_t bytes_sent() const { return interruptible_->bytes_sent(); }
  // Makes every pending and later transfer, on any thread, and a connect() in progress fail.
  void interrupt() noexcept;

 private:
  struct PeerAddress {
    int rank;
    std::vector<char> address;
  };

  void connect_all(const std::vector<PeerAddress>& others);
  void connect_share(const std::vector<PeerAddress>& others, std::size_t first, std::size_t stride);
  void close_pairs() noexcept;
  void destroy_later();

  std::shared_ptr<InterruptibleContext> interruptible_;  // the same object as transportContext_
  std::atomic<bool> interrupted_ = false;
  std::optional<LoopWakeups> wakeups_;
  EventLoop loop_;
  std::atomic<bool> has_pairs_ = false;  // set after the members above
};

}  // namespace ddprun::comm
