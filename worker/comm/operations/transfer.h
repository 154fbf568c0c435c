#pragma once

#include <chrono>

namespace ddprun::comm {

// A send or receive in progress. Destroyed before it is done, it leaves the memory in use until the transport's
// interrupt().
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until done or for timeout; throws what the transport throws.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  // The sending rank of a receive that is done.
  virtual int source() const = 0;
};

}  // namespace ddprun::comm
