#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/float16.h"
#include "worker/cuda/emulator/machine.h"

// Access of the emulated libraries to matrices and images of four types.
namespace ddprun::cuda::emulator {

enum class Element : std::uint8_t { float32, float64, float16, bfloat16 };

inline std::size_t size_of(Element type) {
  return type == Element::float64 ? 8 : type == Element::float32 ? 4 : 2;
}

// Memory that a library's operation uses while it runs. An address of which not all is allocated then is an illegal
// one: the device fails, as a real one does.
struct Region {
  const void* memory;
  std::size_t bytes;
};
inline bool are_allocated(Device& device, const std::vector<Region>& regions) {
  for (const Region& region : regions) {
    if (region.bytes == 0 || device.memory.is_allocated(region.memory, region.bytes)) continue;
    device.fault = cudaErrorIllegalAddress;
    return false;
  }
  return true;
}

// Writes garbage; an operation that reads what it should have written, or whose workspace is in use, then gives it.
inline void spoil(void* memory, std::size_t bytes) {
  if (bytes > 0) std::memset(memory, 0xff, bytes);
}

// Calls visit.template operator()<Stored>().
template <class Visit>
decltype(auto) visit_element(Element type, Visit visit) {
  switch (type) {
    case Element::float64:
      return visit.template operator()<double>();
    case Element::float16:
      return visit.template operator()<Float16>();
    case Element::bfloat16:
      return visit.template operator()<BFloat16>();
    default:
      return visit.template operator()<float>();
  }
}

// Reads `count` elements in the type in which they are computed with.
template <class T>
std::vector<T> read(Element type, const void* from, std::size_t count) {
  std::vector<T> values(count);
  visit_element(type, [&]<class Stored>() {
    const auto* stored = static_cast<const Stored*>(from);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<ComputeType<Stored>>(stored[i]));
  });
  return values;
}

// to[i] = alpha values[i] + beta to[i]; without beta, what is there is not looked at.
template <class T>
void write(Element type, const T* values, std::size_t count, T alpha, T beta, void* to) {
  visit_element(type, [&]<class Stored>() {
    auto* stored = static_cast<Stored*>(to);
    for (std::size_t i = 0; i < count; ++i) {
      const T before = beta == 0 ? T(0) : beta * static_cast<T>(static_cast<ComputeType<Stored>>(stored[i]));
      stored[i] = static_cast<Stored>(static_cast<ComputeType<Stored>>(alpha * values[i] + before));
    }
  });
}

}  // namespace ddprun::cuda::emulator
