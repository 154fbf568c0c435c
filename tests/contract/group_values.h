#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/comm/process_group.h"

// Values that identify their sender and receiver.
namespace ddprun::contract {

inline constexpr DType all_types[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                      DType::int8,    DType::uint8,   DType::int32,   DType::int64};
inline constexpr ReduceOp all_ops[] = {ReduceOp::sum,    ReduceOp::average, ReduceOp::product,
                                       ReduceOp::min,    ReduceOp::max,     ReduceOp::bit_and,
                                       ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premultiplied_sum};
// The lengths are odd counts around the limits of chunks, and one that takes several segments.
inline constexpr std::size_t lengths[] = {1, 2, 3, 7, 64, 1001, 70'001};

bool is_float(DType dtype);
// Returns whether op is for elements of dtype.
bool fits(ReduceOp op, DType dtype);

// Returns small integers: exact in every type and every order of summation.
std::vector<std::byte> small_values(DType dtype, std::size_t count, int rank);
Span typed(std::vector<std::byte>& bytes, DType dtype);
ConstSpan typed(const std::vector<std::byte>& bytes, DType dtype);

// Returns element index of the data that one rank sends to another, or to all (to = 0): different from all others.
std::int64_t value(int from, int to, std::size_t index);
std::vector<std::int64_t> message(int from, int to, std::size_t count);

// Returns the sizes of the ranks' parts: all different, one of them 0.
std::size_t uneven(int rank, int size, std::size_t scale);
Counts uneven_counts(int size, std::size_t scale);

}  // namespace ddprun::contract
