#include "worker/reducer/bucketing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/rounding.h"

namespace ddprun {
namespace {

constexpr std::size_t alignment = 64;  // bytes: a cache line, and the widest vector

std::size_t aligned(std::size_t count, DType dtype) {
  return round_up(count, alignment / size_of(dtype));
}

}  // namespace

std::vector<Bucket> plan_buckets(const std::vector<ParameterRef>& parameters, const BucketLimits& limits,
                                 const std::vector<std::size_t>& delayed, const std::vector<std::size_t>& alone,
                                 const std::vector<std::size_t>& apart) {
  using Kind = std::pair<DType, bool>;  // the type, and whether the parameters are apart
  std::vector<Bucket> buckets;
  std::map<Kind, std::size_t> open;  // the bucket that still takes parameters of a kind
  const auto add = [&](std::size_t index) {
    const auto& parameter = parameters[index];
    const bool is_alone = std::ranges::count(alone, index) > 0;
    const Kind kind{parameter.dtype, std::ranges::count(apart, index) > 0};
    if (is_alone) open.erase(kind);
    const auto [place, fresh] = open.try_emplace(kind, buckets.size());
    if (fresh) buckets.push_back({.dtype = parameter.dtype});
    auto& bucket = buckets[place->second];
    bucket.slices.push_back({index, bucket.count, parameter.count()});
    bucket.count += aligned(parameter.count(), parameter.dtype);
    const auto limit = place->second == 0 ? limits.first_bytes : limits.bytes;
    if (is_alone || bucket.count * size_of(bucket.dtype) >= limit) open.erase(place);
  };
  for (const bool takes_delayed : {false, true}) {
    for (std::size_t left = parameters.size(); left > 0; --left)
      if ((std::ranges::count(delayed, left - 1) > 0) == takes_delayed) add(left - 1);
    open.clear();
  }
  return buckets;
}

}  // namespace ddprun
