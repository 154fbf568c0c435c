#include "worker/nn/layers/dropout.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/shape.h"

namespace ddprun::nn {

Dropout::Dropout(double probability, Generator generator) : probability_(probability), generator_(generator) {}

Variable Dropout::forward(const Variable& input) {
  if (is_identity()) return input;
  if (const SampleKeys* keys = RandomScope::current()) return drop(input, *keys);
  if (sample_part_) throw Error(Errc::usage, "dropout of a part of a sample needs a RandomScope");
  return dropout(input, probability_, generator_);
}

// Elements that follow one another in a sample have numbers that do: each range is dropped by itself.
Variable Dropout::drop(const Variable& input, const SampleKeys& keys) const {
  const Shape shape = input.shape();
  const std::int64_t rows = shape[0], row = input.value().numel() / std::max<std::int64_t>(1, rows);
  const auto streams = streams_of_rows(keys, autograd::current_scope(), rows);
  const auto ranges = ranges_of(sample_part_, row);
  const auto drop_range = [&](const Variable& elements, const SampleRange& range) {
    return dropout(elements, probability_, keys.seed, streams, static_cast<std::uint64_t>(range.start));
  };
  if (ranges.size() == 1) return drop_range(input, ranges.front());
  const Variable flat = reshape(input, {rows, row});
  std::vector<Variable> pieces;
  std::int64_t begin = 0;
  for (const SampleRange& range : ranges) {
    pieces.push_back(drop_range(slice(flat, 1, begin, range.length), range));
    begin += range.length;
  }
  return reshape(concat(pieces, 1), shape);
}

std::unique_ptr<Dropout> make_dropout(double probability, Generator& generator) {
  return std::make_unique<Dropout>(probability, Generator(generator.state().seed, generator.next_u64()));
}

}  // namespace ddprun::nn
