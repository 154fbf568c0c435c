#include "worker/comm/backends/gloo/interruptible_context.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ddprun::comm {

// An abort is final: if no thread waits, Gloo makes the next wait fail. The caller may use its memory again once the
// buffer is destroyed, because Gloo's pairs hold weak references to it.
class InterruptibleContext::Buffer : public ::gloo::transport::UnboundBuffer {
 public:
  Buffer(InterruptibleContext& owner, std::unique_ptr<::gloo::transport::UnboundBuffer> inner)
      : ::gloo::transport::UnboundBuffer(inner->ptr, inner->size), owner_(owner), inner_(std::move(inner)) {
    const std::lock_guard lock(owner_.buffers_mutex_);
    if (owner_.interrupted_) throw std::runtime_error("interrupted");
    owner_.buffers_.insert(this);
  }
  // The pairs are closed only after an interruption: the cause of another failure is found over the other connections.
  ~Buffer() override {
    const bool interrupted = unregister();
    inner_.reset();
    if (interrupted) owner_.close_pairs();
  }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return completed(inner_->waitRecv(rank, timeout));
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return completed(inner_->waitSend(rank, timeout));
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->send(rank, slot, offset, bytes);
    owner_.bytes_sent_.fetch_add(std::min(bytes, size - std::min(offset, size)), std::memory_order_relaxed);
  }
  void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(std::move(ranks), slot, offset, bytes);
  }

 private:
  // Gloo's collectives ignore the result, so an abort has to throw.
  static bool completed(bool result) {
    if (!result) throw std::runtime_error("interrupted");
    return true;
  }
  // Returns whether the context was interrupted.
  bool unregister() {
    const std::lock_guard lock(owner_.buffers_mutex_);
    owner_.buffers_.erase(this);
    return owner_.interrupted_;
  }

  InterruptibleContext& owner_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> inner_;
};

std::unique_ptr<::gloo::transport::UnboundBuffer> InterruptibleContext::createUnboundBuffer(void* data,
                                                                                            std::size_t bytes) {
  return std::make_unique<Buffer>(*this, inner_->createUnboundBuffer(data, bytes));
}

void InterruptibleContext::interrupt() {
  const std::lock_guard lock(buffers_mutex_);
  interrupted_ = true;
  for (auto* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void InterruptibleContext::close_pairs() {
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank && inner_->getPair(peer)) inner_->getPair(peer)->close();
  }
}

}  // namespace ddprun::comm
