#include "worker/cuda/emulator/nccl_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/float16.h"

namespace ddprun::cuda::emulator {
namespace {

struct Half {
  using Computed = float;
  std::uint16_t bits;
  static float load(Half value) { return float_from_float16(value.bits); }
  static Half store(float value) { return {float16_from_float(value)}; }
};
struct BrainHalf {
  using Computed = float;
  std::uint16_t bits;
  static float load(BrainHalf value) { return float_from_bfloat16(value.bits); }
  static BrainHalf store(float value) { return {bfloat16_from_float(value)}; }
};
template <class T>
struct Plain {
  using Computed = T;
  T value;
  static T load(Plain from) { return from.value; }
  static Plain store(T value) { return {value}; }
};

// Calls function with a value of the storage type.
template <class Function>
void with_type(ncclDataType_t type, const Function& function) {
  switch (type) {
    case ncclInt8:
      return function(Plain<std::int8_t>{});
    case ncclUint8:
      return function(Plain<std::uint8_t>{});
    case ncclInt32:
      return function(Plain<std::int32_t>{});
    case ncclUint32:
      return function(Plain<std::uint32_t>{});
    case ncclInt64:
      return function(Plain<std::int64_t>{});
    case ncclUint64:
      return function(Plain<std::uint64_t>{});
    case ncclFloat16:
      return function(Half{});
    case ncclFloat32:
      return function(Plain<float>{});
    case ncclFloat64:
      return function(Plain<double>{});
    case ncclBfloat16:
      return function(BrainHalf{});
    default:
      return function(Plain<std::uint8_t>{});
  }
}

template <class T>
T combined(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

template <class T>
T read(const std::byte* values, std::size_t i) {
  T value;
  std::memcpy(&value, values + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void write(std::byte* values, std::size_t i, T value) {
  std::memcpy(values + i * sizeof(T), &value, sizeof(T));
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t size = 1;
  with_type(type, [&](auto storage) { size = sizeof storage; });
  return size;
}

double scalar_value(const void* scalar, ncclDataType_t type) {
  double value = 0;
  with_type(type, [&](auto storage) {
    using Storage = decltype(storage);
    value = static_cast<double>(Storage::load(read<Storage>(static_cast<const std::byte*>(scalar), 0)));
  });
  return value;
}

void combine(ncclRedOp_t op, ncclDataType_t type, std::byte* sum, const std::byte* values, std::size_t count) {
  with_type(type, [&](auto storage) {
    using Storage = decltype(storage);
    for (std::size_t i = 0; i < count; ++i) {
      const auto a = Storage::load(read<Storage>(sum, i)), b = Storage::load(read<Storage>(values, i));
      write(sum, i, Storage::store(combined(op, a, b)));
    }
  });
}

void multiply(ncclDataType_t type, std::byte* values, double factor, std::size_t count) {
  with_type(type, [&](auto storage) {
    using Storage = decltype(storage);
    using Computed = typename Storage::Computed;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(Storage::load(read<Storage>(values, i)));
      write(values, i, Storage::store(static_cast<Computed>(value * factor)));
    }
  });
}

}  // namespace ddprun::cuda::emulator
