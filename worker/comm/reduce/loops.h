// The loops over elements, compiled in each including file for its kind of processor. Everything here has internal
// linkage and calls no function template of the standard library: the linker must not choose a copy with newer
// instructions for the whole program.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/comm/reduce/copies.h"
#include "worker/comm/reduce/formats.h"
#include "worker/comm/reduce/functions.h"
#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {
namespace {

// Each output := finish(function over all inputs), element by element, in the inputs' order. The outputs may be among
// the inputs.
template <class Format, class Function, class Finish>
class Reducing {
 public:
  using Stored = typename Format::Stored;
  using Value = typename Format::Value;

  Reducing(void* const* outputs, std::size_t outputs_count, const void* const* inputs, std::size_t inputs_count,
           Function function, Finish finish)
      : outputs_(outputs),
        outputs_count_(outputs_count),
        inputs_(inputs),
        inputs_count_(inputs_count),
        function_(function),
        finish_(finish) {}

  // Processes a few vectors of all inputs in turn, of two pages at a time, so that the processor prefetches all of
  // them, which often are the outputs too, at once.
  void run(std::size_t count) const {
    if (inputs_count_ == 2 && outputs_count_ == 2) return run<1>(count, 2, 2);  // constants, to unroll
    run<4>(count, inputs_count_, outputs_count_);
  }

 private:
  static constexpr std::size_t lanes = vector_bytes / sizeof(Value);

  template <std::size_t Few>
  [[gnu::always_inline]] void run(std::size_t count, std::size_t inputs, std::size_t outputs) const {
    constexpr std::size_t page = page_bytes / sizeof(Stored);
    std::size_t i = 0;
    for (; i + 2 * page <= count; i += 2 * page) {
      for (std::size_t j = i; j < i + page; j += Few * lanes) {
        reduce_vectors<Few>(j, inputs, outputs);
        reduce_vectors<Few>(j + page, inputs, outputs);
      }
    }
    for (; i + Few * lanes <= count; i += Few * lanes) reduce_vectors<Few>(i, inputs, outputs);
    for (; i + lanes <= count; i += lanes) reduce_vectors<1>(i, inputs, outputs);
    for (; i < count; ++i) reduce_one(i, inputs, outputs);
  }
  const Stored* input(std::size_t k) const { return static_cast<const Stored*>(inputs_[k]); }
  Stored* output(std::size_t k) const { return static_cast<Stored*>(outputs_[k]); }

  template <std::size_t Few>
  [[gnu::always_inline]] void reduce_vectors(std::size_t i, std::size_t inputs, std::size_t outputs) const {
    Vector<Value> values[Few];
    for (std::size_t v = 0; v < Few; ++v) values[v] = Format::load_vector(input(0) + i + v * lanes);
    for (std::size_t k = 1; k < inputs; ++k) {
      const auto* const next = input(k) + i;
      for (std::size_t v = 0; v < Few; ++v) values[v] = function_(values[v], Format::load_vector(next + v * lanes));
    }
    for (std::size_t v = 0; v < Few; ++v) values[v] = finished(values[v]);
    for (std::size_t k = 0; k < outputs; ++k) {
      auto* const to = output(k) + i;
      for (std::size_t v = 0; v < Few; ++v) Format::store_vector(to + v * lanes, values[v]);
    }
  }
  // The division is of the value as it would be stored: rounded.
  Vector<Value> finished(Vector<Value> values) const {
    if constexpr (!Format::computed_as_stored && !std::is_same_v<Finish, Keep>) {
      Stored rounded[lanes];
      Format::store_vector(rounded, values);
      values = Format::load_vector(rounded);
    }
    return finish_(values);
  }

  [[gnu::always_inline]] void reduce_one(std::size_t i, std::size_t inputs, std::size_t outputs) const {
    auto value = Format::load(element(input(0) + i));
    for (std::size_t k = 1; k < inputs; ++k) value = function_(value, Format::load(element(input(k) + i)));
    const auto result = Format::store(finish_(Format::load(Format::store(value))));
    for (std::size_t k = 0; k < outputs; ++k) put_element(output(k) + i, result);
  }

  void* const* const outputs_;
  const std::size_t outputs_count_;
  const void* const* const inputs_;
  const std::size_t inputs_count_;
  const Function function_;
  const Finish finish_;
};

void reduce_loops(ReduceOp op, DType dtype, void* const* outputs, std::size_t outputs_count, const void* const* inputs,
                  std::size_t inputs_count, std::size_t count, int divisor) {
  with_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Value = typename Format::Value;
    const auto run = [&](auto function, auto finish) {
      using Function = decltype(function);
      if constexpr (Applies<Format, Function>) {
        using Works = typename WorksIn<Format, Function>::Type;
        Reducing<Works, Function, decltype(finish)>(outputs, outputs_count, inputs, inputs_count, function, finish)
            .run(count);
      }
    };
    if constexpr (std::is_floating_point_v<Value>) {
      if (divisor != 1) return run(Add(), DivideBy<Value>{static_cast<Value>(divisor)});
    }
    with_function(op, [&](auto function) { run(function, Keep()); });
  });
}

// Each output := change(input), where the two formats may differ.
template <class To, class From, class Change>
void change_each(void* output, const void* input, std::size_t count, Change change) {
  auto* const out = static_cast<typename To::Stored*>(output);
  const auto* const in = static_cast<const typename From::Stored*>(input);
  constexpr std::size_t step = vector_bytes / sizeof(typename From::Value);
  std::size_t i = 0;
  for (; i + step <= count; i += step) To::store_vector(out + i, change(From::load_vector(in + i)));
  for (; i < count; ++i) put_element(out + i, To::store(change(From::load(element(in + i)))));
}

// 16-bit floats become float32, so that their sum is rounded once.
void multiply_loops(DType dtype, void* output, const void* input, std::size_t count, double factor) {
  with_format(dtype, [&](auto format) {
    using Value = typename decltype(format)::Value;
    change_each<Plain<Value>, decltype(format)>(output, input, count, MultiplyBy<Value>{static_cast<Value>(factor)});
  });
}

void round_loops(DType dtype, void* output, const float* values, std::size_t count) {
  if (dtype == DType::float16) return change_each<Float16, Plain<float>>(output, values, count, Keep());
  change_each<BFloat16, Plain<float>>(output, values, count, Keep());
}

void divide_loops(DType dtype, void* data, std::size_t count, int divisor) {
  with_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using Value = typename Format::Value;
    change_each<Format, Format>(data, data, count, DivideBy<Value>{static_cast<Value>(divisor)});
  });
}

constexpr KernelVariant variant(const char* name, bool (*supported)()) {
  return {name,
          supported,
          reduce_loops,
          multiply_loops,
          round_loops,
          divide_loops,
          copy_loop,
          copy_from_peer_loop,
          copy_for_peers_loop,
          copy_past_caches_loop,
          prefetch_for_writing_loop};
}

}  // namespace
}  // namespace ddprun::comm
