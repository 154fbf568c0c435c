#include "worker/nn/sample_part.h"

#include <algorithm>
#include <utility>

namespace ddprun::nn {

std::vector<SampleRange> ranges_of(const SamplePart& part, std::int64_t own) {
  return part ? part(own) : std::vector<SampleRange>{{0, own}};
}

SamplePart equal_part(SamplePart of, int part, int parts) {
  return [of = std::move(of), part, parts](std::int64_t own) {
    const std::int64_t begin = part * own, end = begin + own;
    std::vector<SampleRange> ranges;
    std::int64_t passed = 0;  // elements of the ranges so far
    for (const SampleRange& range : ranges_of(of, own * parts)) {
      const std::int64_t from = std::max(begin, passed), to = std::min(end, passed + range.length);
      if (from < to) ranges.push_back({range.start + from - passed, to - from});
      passed += range.length;
    }
    return ranges;
  };
}

}  // namespace ddprun::nn
