#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "worker/capi/ddprun.h"
#include "worker/capi/element_types.h"

namespace ddprun::capi {

using Tensors = std::span<const ddprun_tensor>;

inline std::size_t elements(const ddprun_tensor& tensor) {
  return static_cast<std::size_t>(tensor.count);
}

// A list of the caller's tensors, of the same units, whose memory has to be one piece for an operation.
class FlatList {
 public:
  FlatList(Tensors tensors, const Units& units)
      : tensors_(tensors), element_bytes_(size_of(units.dtype) * units.count) {
    for (const auto& tensor : tensors) count_ += elements(tensor);
  }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * element_bytes_; }

  // Returns the memory of all, in their order, if it is one piece already; otherwise null.
  void* piece() const {
    std::byte* begin = nullptr;
    std::byte* next = nullptr;
    for (const auto& tensor : tensors_) {
      if (tensor.count == 0) continue;
      auto* const data = static_cast<std::byte*>(tensor.data);
      if (next && data != next) return nullptr;
      if (!begin) begin = data;
      next = data + elements(tensor) * element_bytes_;
    }
    return begin;
  }

  void copy_to(void* flat) const {
    auto* to = static_cast<std::byte*>(flat);
    for (const auto& tensor : tensors_) {
      const auto bytes = elements(tensor) * element_bytes_;
      if (bytes > 0) std::memcpy(to, tensor.data, bytes);
      to += bytes;
    }
  }
  // The list may be gone when the function runs: it has a copy.
  std::function<void()> copy_from(const void* flat) const {
    return [flat, tensors = std::vector(tensors_.begin(), tensors_.end()), element_bytes = element_bytes_] {
      const auto* from = static_cast<const std::byte*>(flat);
      for (const auto& tensor : tensors) {
        const auto bytes = elements(tensor) * element_bytes;
        if (bytes > 0) std::memcpy(tensor.data, from, bytes);
        from += bytes;
      }
    };
  }

 private:
  Tensors tensors_;
  std::size_t element_bytes_;
  std::size_t count_ = 0;
};

}  // namespace ddprun::capi
