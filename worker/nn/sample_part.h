#pragma once

#include <cstdint>
#include <functional>
#include <vector>

// The parts of samples that ranks have where they divide positions, heads or features among them. Pure functions.
namespace ddprun::nn {

// Elements, or positions, that follow one another both in a whole sample and in a rank's part of it.
struct SampleRange {
  std::int64_t start = 0;  // in the whole
  std::int64_t length = 0;
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// Returns a rank's ranges of a whole, in its order, from the number that it has in all. Empty: it has the whole.
using SamplePart = std::function<std::vector<SampleRange>(std::int64_t own)>;

// Returns the ranges of a part; one for the whole.
std::vector<SampleRange> ranges_of(const SamplePart& part, std::int64_t own);

// Returns one of so many equal parts of a part: the elements that follow one another in its order.
SamplePart equal_part(SamplePart of, int part, int parts);

}  // namespace ddprun::nn
