#include "tests/contract/group_values.h"

#include <cstring>

#include "common/float16.h"

namespace ddprun::contract {
namespace {

void put(std::vector<std::byte>& bytes, DType dtype, std::size_t index, double value) {
  const auto store = [&](auto typed) { std::memcpy(bytes.data() + index * sizeof(typed), &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::float32:
      return store(static_cast<float>(value));
    case DType::float64:
      return store(value);
    case DType::float16:
      return store(float16_from_float(static_cast<float>(value)));
    case DType::bfloat16:
      return store(bfloat16_from_float(static_cast<float>(value)));
    case DType::int8:
      return store(static_cast<std::int8_t>(value));
    case DType::uint8:
      return store(static_cast<std::uint8_t>(value));
    case DType::int32:
      return store(static_cast<std::int32_t>(value));
    case DType::int64:
      return store(static_cast<std::int64_t>(value));
  }
}

}  // namespace

std::vector<std::byte> small_values(DType dtype, std::size_t count, int rank) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    put(bytes, dtype, i, static_cast<double>((i * 7 + 3u * static_cast<unsigned>(rank)) % 4 + 1));
  }
  return bytes;
}

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}

bool fits(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      return is_float(dtype);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return !is_float(dtype);
    default:
      return true;
  }
}

Span typed(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), bytes.size() / size_of(dtype), dtype};
}
ConstSpan typed(const std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), bytes.size() / size_of(dtype), dtype};
}

std::int64_t value(int from, int to, std::size_t index) {
  return from * 1'000'000'007LL + to * 1'000'003LL + static_cast<std::int64_t>(index);
}

std::vector<std::int64_t> message(int from, int to, std::size_t count) {
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(from, to, i);
  return values;
}

std::size_t uneven(int rank, int size, std::size_t scale) {
  return static_cast<std::size_t>((rank * 2 + 1) % (size + 1)) * scale / 2 % (3 * scale);
}

Counts uneven_counts(int size, std::size_t scale) {
  Counts counts;
  for (int r = 0; r < size; ++r) counts.push_back(uneven(r, size, scale));
  return counts;
}

}  // namespace ddprun::contract
