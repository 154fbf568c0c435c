#include "ddprun/worker/reducer/bucketing.h"

#include <map>

namespace ddprun {
namespace {

constexpr std::size_t alignment = 64;  // bytes: a cache line, and the widest vector

std::size_t aligned(std::size_t count, DType dtype) {
  const auto unit = alignment / size_of(dtype);
  return (count + unit - 1) / unit * unit;
}

}  // namespace

std::vector<Bucket> plan_buckets(const std::vector<ParameterRef>& parameters, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  std::map<DType, std::size_t> open;  // the bucket that still takes parameters of a type
  for (std::size_t left = parameters.size(); left > 0; --left) {
    const auto index = left - 1;
    const auto& parameter = parameters[index];
    const auto [place, fresh] = open.try_emplace(parameter.dtype, buckets.size());
    if (fresh) buckets.push_back({.dtype = parameter.dtype});
    auto& bucket = buckets[place->second];
    bucket.slices.push_back({index, bucket.count, parameter.count()});
    bucket.count += aligned(parameter.count(), parameter.dtype);
    const auto limit = place->second == 0 ? limits.first_bytes : limits.bytes;
    if (bucket.count * size_of(bucket.dtype) >= limit) open.erase(place);
  }
  return buckets;
}

}  // namespace ddprun
