#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace ddprun::comm {

// A Gloo transport's context whose transfers can all be ended at once, those of Gloo's own collectives included: they
// make their buffers here.
//
// Gloo itself tells the buffers of a failed pair, but for one whose send is under way: that one waits out its timeout.
class InterruptibleContext : public ::gloo::transport::Context {
 public:
  explicit InterruptibleContext(std::shared_ptr<::gloo::transport::Context> inner)
      : ::gloo::transport::Context(inner->rank, inner->size), inner_(std::move(inner)) {}

  std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }
  // Throws once interrupted.
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override;

  // Every pending and later wait fails. From any thread.
  void interrupt();
  // A pair's lock is the last that its loop's thread held when it moved memory: who has closed it may use that memory,
  // and whoever watches the locks (ThreadSanitizer) knows it.
  void close_pairs();
  // Below the interruption.
  ::gloo::transport::Context& inner() { return *inner_; }

 private:
  class Buffer;

  const std::shared_ptr<::gloo::transport::Context> inner_;
  std::mutex buffers_mutex_;  // guards what follows
  bool interrupted_ = false;
  std::unordered_set<Buffer*> buffers_;
};

}  // namespace ddprun::comm
