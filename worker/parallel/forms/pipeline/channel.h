#pragma once

#include <cstdint>

#include "worker/tensor/tensor.h"

namespace ddprun::pipeline {

// A tensor that one stage computes for another: an activation for the stage after it, or a gradient for the one before.
struct Message {
  int stage = 0;  // the stage that receives it
  int micro_batch = 0;
  bool is_gradient = false;
  std::int64_t samples = 0;  // those of the micro-batch, as sender and receiver know
  Tensor like = {};          // for a gradient that is received: a tensor of its shape and dtype
};

// The exchange of tensors between pipeline stages, as seen by a rank, which is a process or a device of one.
//
// Ownership: tensors are handles; a channel keeps one that was sent until it has been taken over.
// Threads: one at a time. Errors: those of the transport, and Errc::mismatch for shapes that change.
class Channel {
 public:
  virtual ~Channel() = default;

  // Returns at once; the tensor is not written any more.
  virtual void send(int rank, const Message& message, const Tensor& value) = 0;
  // Announces that receive() with the same arguments follows, so that the message may travel meanwhile.
  virtual void expect(int /*rank*/, const Message& /*message*/) {}
  // Waits for the message.
  virtual Tensor receive(int rank, const Message& message) = 0;
  // Waits until what was sent has been taken over.
  virtual void finish() = 0;
};

}  // namespace ddprun::pipeline
