#include "tests/bench/collectives/operations.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "common/error.h"
#include "common/float16.h"

namespace ddprun::bench {
namespace {

using Value = double (*)(int, std::size_t);

double sum_at(std::size_t index, int ranks, Value value) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value(r, index);
  return sum;
}

constexpr Operation operations[] = {
    {"allreduce", false, false, true, [](double n) { return 2 * (n - 1) / n; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.allreduce(memory.output, {}, options);
     },
     [](int, std::size_t i, int ranks, std::size_t, Value value) { return sum_at(i, ranks, value); }},
    {"reduce", false, false, true, [](double) { return 1.0; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.reduce(memory.output, 0, {}, options);
     },
     [](int rank, std::size_t i, int ranks, std::size_t, Value value) {
       return rank == 0 ? sum_at(i, ranks, value) : value(rank, i);
     }},
    {"broadcast", false, false, true, [](double) { return 1.0; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.broadcast(memory.output, 0, options);
     },
     [](int, std::size_t i, int, std::size_t, Value value) { return value(0, i); }},
    {"allgather", true, false, false, [](double n) { return (n - 1) / n; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.allgather(memory.input, memory.output, options);
     },
     [](int, std::size_t i, int, std::size_t part, Value value) {
       return value(static_cast<int>(i / part), i % part);
     }},
    {"reduce_scatter", false, true, false, [](double n) { return (n - 1) / n; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.reduce_scatter(memory.input, memory.output, {}, options);
     },
     [](int rank, std::size_t i, int ranks, std::size_t part, Value value) {
       return sum_at(static_cast<std::size_t>(rank) * part + i, ranks, value);
     }},
    {"all_to_all", false, false, false, [](double n) { return (n - 1) / n; },
     [](ProcessGroup& group, const Memory& memory, OpOptions options) {
       return group.all_to_all(memory.input, memory.output, options);
     },
     [](int rank, std::size_t i, int, std::size_t part, Value value) {
       return value(static_cast<int>(i / part), static_cast<std::size_t>(rank) * part + i % part);
     }},
    {"barrier", false, false, true, [](double) { return 0.0; },
     [](ProcessGroup& group, const Memory&, OpOptions options) { return group.barrier(options); },
     [](int rank, std::size_t i, int, std::size_t, Value value) { return value(rank, i); }},
};

constexpr DType all_types[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                               DType::int8,    DType::uint8,   DType::int32,   DType::int64};

// The period differs from the sizes of blocks, cache lines and pages, so that misplaced bytes are detected.
constexpr std::size_t period = 1021;

// The sum over 20 ranks is exact in every type.
double value_of(int rank, std::size_t index) {
  return rank % 4 + 1 + static_cast<double>((index % period * 2654435761u >> 8) % 3);
}

template <class Action>
void with_stored(DType dtype, Action action) {
  switch (dtype) {
    case DType::float32:
      return action([](double v) { return static_cast<float>(v); });
    case DType::float64:
      return action([](double v) { return v; });
    case DType::float16:
      return action([](double v) { return float16_from_float(static_cast<float>(v)); });
    case DType::bfloat16:
      return action([](double v) { return bfloat16_from_float(static_cast<float>(v)); });
    case DType::int8:
    case DType::uint8:
      return action([](double v) { return static_cast<std::uint8_t>(v); });
    case DType::int32:
      return action([](double v) { return static_cast<std::int32_t>(v); });
    case DType::int64:
      return action([](double v) { return static_cast<std::int64_t>(v); });
  }
}

// The first elements of a rank's input; the rest repeats them.
const std::vector<std::byte>& pattern(DType dtype, int rank) {
  static std::map<std::pair<DType, int>, std::vector<std::byte>> patterns;
  auto& bytes = patterns[{dtype, rank}];
  if (!bytes.empty()) return bytes;
  bytes.resize(period * size_of(dtype));
  with_stored(dtype, [&](auto stored) {
    for (std::size_t i = 0; i < period; ++i) {
      const auto value = stored(value_of(rank, i));
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return bytes;
}

}  // namespace

const Operation& operation_named(const std::string& name) {
  for (const auto& each : operations)
    if (name == each.name) return each;
  throw make_error(Errc::usage, "unknown collective {}; known are {}", name, operation_names());
}

std::string operation_names() {
  std::string names;
  for (const auto& each : operations) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

DType dtype_named(const std::string& name) {
  for (const auto dtype : all_types)
    if (name_of(dtype) == name) return dtype;
  throw make_error(Errc::usage, "unknown element type {}", name);
}

void fill(Span input, int rank) {
  const auto& source = pattern(input.dtype, rank);
  auto* const to = static_cast<std::byte*>(input.data);
  for (std::size_t done = 0; done < input.bytes(); done += source.size())
    std::memcpy(to + done, source.data(), std::min(source.size(), input.bytes() - done));
}

void verify(const Operation& operation, ConstSpan output, int rank, int ranks) {
  const auto part = operation.part_out ? output.count : output.count / static_cast<std::size_t>(ranks);
  with_stored(output.dtype, [&](auto stored) {
    const auto* const bytes = static_cast<const std::byte*>(output.data);
    for (std::size_t i = 0; i < output.count; ++i) {
      const auto right = stored(operation.expected(rank, i, ranks, part, value_of));
      if (std::memcmp(bytes + i * sizeof right, &right, sizeof right) == 0) continue;
      throw make_error(Errc::internal, "{} of {} {}: element {} is wrong at rank {}", operation.name, output.count,
                       name_of(output.dtype), i, rank);
    }
  });
}

}  // namespace ddprun::bench
