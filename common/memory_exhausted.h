#pragma once

#include <cstddef>
#include <string>

#include "ddprun/common/error.h"

namespace ddprun {

// An allocation for which a device has not enough memory: who knows what holds it can tell. A value.
class MemoryExhausted : public Error {
 public:
  MemoryExhausted(int device, std::size_t wanted, const std::string& message)
      : Error(Errc::io, message), device_(device), wanted_(wanted) {}
  int device() const { return device_; }          // its number
  std::size_t wanted() const { return wanted_; }  // bytes, at least 1

 private:
  int device_;
  std::size_t wanted_;
};

}  // namespace ddprun
