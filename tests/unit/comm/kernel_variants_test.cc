// Every kernel variant that this processor supports has the plain one's results bit for bit: for every length that can
// leave a remainder, and every alignment.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/float16.h"
#include "worker/comm/reduce/variant.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr DType all_types[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                               DType::int8,    DType::uint8,   DType::int32,   DType::int64};
constexpr ReduceOp all_operations[] = {ReduceOp::sum,    ReduceOp::average, ReduceOp::product,
                                       ReduceOp::min,    ReduceOp::max,     ReduceOp::bit_and,
                                       ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premultiplied_sum};
constexpr std::size_t most = 100, room = 3000;

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}
bool applies(ReduceOp op, DType dtype) {
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return !bitwise || !is_float(dtype);
}

// Values of a type at an offset, in elements, from memory that is aligned by its allocator.
class Values {
 public:
  Values(DType dtype, std::size_t shift, unsigned seed) : memory_((room + shift) * size_of(dtype)), dtype_(dtype) {
    start_ = memory_.data() + shift * size_of(dtype);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 8);
    for (std::size_t i = 0; i < room; ++i) set(i, normal(random));
  }
  Values(const Values& other)
      : memory_(other.memory_), dtype_(other.dtype_), start_(memory_.data() + (other.start_ - other.memory_.data())) {}
  Values(Values&& other) = default;
  Values& operator=(const Values&) = delete;
  void* data() { return start_; }
  const std::vector<std::byte>& memory() const { return memory_; }

 private:
  void set(std::size_t i, float value) {
    switch (dtype_) {
      case DType::float32:
        return put(i, value);
      case DType::float64:
        return put(i, double{value});
      case DType::float16:
        return put(i, float16_from_float(value));
      case DType::bfloat16:
        return put(i, bfloat16_from_float(value));
      case DType::int8:
      case DType::uint8:
        return put(i, static_cast<std::int8_t>(value));
      case DType::int32:
        return put(i, static_cast<std::int32_t>(value * 1e8f));
      case DType::int64:
        return put(i, static_cast<std::int64_t>(value * 1e17f));
    }
  }
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(start_ + i * sizeof value, &value, sizeof value);
  }

  std::vector<std::byte> memory_;
  DType dtype_;
  std::byte* start_;
};

// Returns the memory after a reduction of that many inputs: only the output may change.
std::vector<std::byte> reduced(const KernelVariant& variant, ReduceOp op, DType dtype, std::size_t inputs,
                               std::size_t count, std::size_t shift, bool in_place) {
  std::vector<Values> values;
  for (std::size_t k = 0; k < inputs; ++k) values.emplace_back(dtype, (shift + k) % 5, static_cast<unsigned>(k));
  Values output(dtype, shift, 99);
  std::vector<const void*> pointers;
  for (auto& each : values) pointers.push_back(each.data());
  auto& target = in_place ? values.back() : output;
  void* const to = target.data();
  variant.reduce(op, dtype, &to, 1, pointers.data(), inputs, count, 1);
  return target.memory();
}

// Multiplies 16-bit floats through float32.
void multiply(const KernelVariant& variant, DType dtype, void* data, std::size_t count) {
  if (size_of(dtype) > 2) return variant.multiply(dtype, data, data, count, 1.7);
  std::vector<float> values(count);
  variant.multiply(dtype, values.data(), data, count, 1.7);
  variant.round(dtype, data, values.data(), count);
}

// Returns a line of the first processor in /proc/cpuinfo; empty if there is none of that name.
std::set<std::string> processor_flags() {
  std::ifstream processors("/proc/cpuinfo");
  for (std::string line; std::getline(processors, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

template <class Action>
void for_each_other_variant(Action action) {
  for (const auto* variant : kernel_variants()) {
    if (variant == &plain_kernels) continue;
    if (!variant->supported()) {
      WARN("this processor lacks what the " << variant->name << " kernels need: not tested");
      continue;
    }
    action(*variant);
  }
}

}  // namespace

TEST_CASE("every variant reduces to the plain one's bits, at every length and alignment") {
  for_each_other_variant([](const KernelVariant& variant) {
    for (const auto dtype : all_types) {
      for (const auto op : all_operations) {
        if (!applies(op, dtype)) continue;
        for (std::size_t count = 0; count <= most; ++count) {
          const std::size_t inputs = 2 + count % 3, shift = count % 4;
          INFO(variant.name << " " << name_of(dtype) << " operation " << static_cast<int>(op) << ", " << inputs
                            << " inputs of " << count);
          REQUIRE(reduced(variant, op, dtype, inputs, count, shift, count % 2 == 0) ==
                  reduced(plain_kernels, op, dtype, inputs, count, shift, count % 2 == 0));
        }
      }
    }
  });
}

TEST_CASE("every variant reduces long inputs to the plain one's bits") {
  for_each_other_variant([](const KernelVariant& variant) {
    for (const auto dtype : all_types) {
      for (const std::size_t inputs : {2, 3, 5}) {
        INFO(variant.name << " " << name_of(dtype) << ", " << inputs << " inputs");
        CHECK(reduced(variant, ReduceOp::sum, dtype, inputs, 2500, 1, true) ==
              reduced(plain_kernels, ReduceOp::sum, dtype, inputs, 2500, 1, true));
      }
    }
  });
}

TEST_CASE("every variant reduces into several outputs to the bits of a separate reduction, division and copies") {
  for (const auto* variant : kernel_variants()) {
    if (!variant->supported()) continue;
    for (const auto dtype : all_types) {
      for (const auto op : all_operations) {
        if (!applies(op, dtype)) continue;
        for (std::size_t count = 0; count <= most; ++count) {
          const std::size_t inputs = 2 + count % 4;
          std::vector<Values> values;
          std::vector<void*> outputs;
          for (std::size_t k = 0; k < inputs; ++k)
            values.emplace_back(dtype, (count + k) % 5, static_cast<unsigned>(k));
          for (auto& each : values) outputs.push_back(each.data());
          auto expected = values;
          const std::vector<const void*> pointers(outputs.begin(), outputs.end());
          const bool average = op == ReduceOp::average && is_float(dtype);
          void* const first = expected[0].data();
          plain_kernels.reduce(op, dtype, &first, 1, pointers.data(), inputs, count, 1);
          if (average) plain_kernels.divide(dtype, first, count, static_cast<int>(inputs));
          for (auto& each : expected)
            if (each.data() != first) std::memcpy(each.data(), first, count * size_of(dtype));

          variant->reduce(op, dtype, outputs.data(), inputs, pointers.data(), inputs, count,
                          average ? static_cast<int>(inputs) : 1);
          INFO(variant->name << " " << name_of(dtype) << " operation " << static_cast<int>(op) << ", " << count);
          for (std::size_t k = 0; k < inputs; ++k) REQUIRE(values[k].memory() == expected[k].memory());
        }
      }
    }
  }
}

TEST_CASE("every variant multiplies and divides to the plain one's bits") {
  for_each_other_variant([](const KernelVariant& variant) {
    for (const auto dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (std::size_t count = 0; count <= most; ++count) {
        Values expected(dtype, count % 4, 1), found(dtype, count % 4, 1);
        multiply(plain_kernels, dtype, expected.data(), count);
        plain_kernels.divide(dtype, expected.data(), count, 3);
        multiply(variant, dtype, found.data(), count);
        variant.divide(dtype, found.data(), count, 3);
        INFO(variant.name << " " << name_of(dtype) << " " << count);
        REQUIRE(found.memory() == expected.memory());
      }
    }
  });
}

TEST_CASE("every variant converts 16-bit floats, also NaN, as the scalar conversion does") {
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;  // every bfloat16, the values next to it, and those between two
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    halves.push_back(static_cast<std::uint16_t>(bits));
    for (const std::uint32_t low : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff})
      floats.push_back(bits_as<float>(bits << 16 | low));
  }
  const auto same = [](float one, float other) {
    return bits_as<std::uint32_t>(one) == bits_as<std::uint32_t>(other) || (std::isnan(one) && std::isnan(other));
  };
  const auto differing = [&](const KernelVariant& variant, DType dtype, auto load, auto store) {
    std::vector<float> loaded(halves.size());
    variant.multiply(dtype, loaded.data(), halves.data(), halves.size(), 1);
    std::vector<std::uint16_t> stored(floats.size());
    variant.round(dtype, stored.data(), floats.data(), floats.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < halves.size(); ++i) count += same(loaded[i], load(halves[i])) ? 0 : 1;
    for (std::size_t i = 0; i < floats.size(); ++i) count += same(load(stored[i]), load(store(floats[i]))) ? 0 : 1;
    return count;
  };
  for (const auto* variant : kernel_variants()) {
    if (!variant->supported()) continue;
    INFO(variant->name);
    CHECK(differing(*variant, DType::float16, float_from_float16, float16_from_float) == 0);
    CHECK(differing(*variant, DType::bfloat16, float_from_bfloat16, bfloat16_from_float) == 0);
  }
}

// All up to some lines, and some about the size from which pages are copied in pairs.
std::vector<std::size_t> lengths_to_copy() {
  std::vector<std::size_t> lengths(1200);
  std::iota(lengths.begin(), lengths.end(), std::size_t{0});
  for (const std::size_t pages : {7, 8, 9, 10, 13})
    for (const std::size_t more : {0, 1, 63, 64, 65, 1500}) lengths.push_back(pages * 4096 + more);
  return lengths;
}

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

TEST_CASE("every variant copies every length at every alignment, and writes nothing else") {
  const auto from = random_bytes(60000, 1), before = random_bytes(60000, 2);
  for (const auto* variant : kernel_variants()) {
    if (!variant->supported()) continue;
    for (const auto copy :
         {variant->copy, variant->copy_from_peer, variant->copy_for_peers, variant->copy_past_caches}) {
      for (const auto bytes : lengths_to_copy()) {
        const auto to_offset = bytes % 67, from_offset = bytes % 7;
        auto to = before, expected = before;
        std::memcpy(expected.data() + to_offset, from.data() + from_offset, bytes);
        copy(to.data() + to_offset, from.data() + from_offset, bytes);
        INFO(variant->name << " " << bytes);
        REQUIRE(to == expected);
      }
    }
  }
}

TEST_CASE("prefetching changes nothing in the memory") {
  for (const auto* variant : kernel_variants()) {
    if (!variant->supported()) continue;
    for (const std::size_t bytes : {0, 1, 64, 300, 16384}) {
      auto memory = random_bytes(bytes, 3);
      variant->prefetch_for_writing(memory.data(), bytes);
      CHECK(memory == random_bytes(bytes, 3));
    }
  }
}

TEST_CASE("a variant is supported exactly if the processor has the instructions it is compiled for") {
  const auto flags = processor_flags();
  const auto has = [&](const char* flag) { return flags.contains(flag); };
  for (const auto* variant : kernel_variants()) {
    const std::string name = variant->name;
    INFO(name);
    if (name == "avx2") CHECK(variant->supported() == (has("avx2") && has("f16c")));
    if (name == "avx512") {
      CHECK(variant->supported() ==
            (has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("f16c")));
    }
  }
}
