#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace ddprun::comm {

// A Gloo transport context whose transfers can all be aborted at once, including those of Gloo's own collectives, since
// all buffers are created here. Owns the inner context; outlives its buffers. Thread-safe.
//
// When a pair fails, Gloo itself wakes the buffers that wait for it, except one whose send is in progress: that one
// would wait for its timeout.
class InterruptibleContext : public ::gloo::transport::Context {
 public:
  explicit InterruptibleContext(std::shared_ptr<::gloo::transport::Context> inner)
      : ::gloo::transport::Context(inner->rank, inner->size), inner_(std::move(inner)) {}

  std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }
  // Throws once interrupted.
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override;

  // Returns the bytes that all buffers have sent so far. Any thread may call it.
  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  // Makes every pending and later wait fail. Any thread may call it.
  void interrupt();
  // After this call, Gloo's loop thread accesses no memory of a transfer any more: it held the pair's lock when it last
  // did, and closing takes that lock (so ThreadSanitizer sees the order, too).
  void close_pairs();
  // The context without interruption.
  ::gloo::transport::Context& inner() { return *inner_; }

 private:
  class Buffer;

  const std::shared_ptr<::gloo::transport::Context> inner_;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  std::mutex buffers_mutex_;  // guards what follows
  bool interrupted_ = false;
  std::unordered_set<Buffer*> buffers_;
};

}  // namespace ddprun::comm
