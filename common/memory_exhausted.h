#pragma once

#include <cstddef>
#include <string>

#include "common/error.h"

namespace ddprun {

// A device has too little memory for an allocation; a catcher that knows what uses the memory can report it. A value.
class MemoryExhausted : public Error {
 public:
  MemoryExhausted(int device, std::size_t wanted, const std::string& message)
      : Error(Errc::io, message), device_(device), wanted_(wanted) {}
  int device() const { return device_; }          // the device's number
  std::size_t wanted() const { return wanted_; }  // bytes, at least 1

 private:
  int device_;
  std::size_t wanted_;
};

}  // namespace ddprun
