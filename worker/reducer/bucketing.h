#pragma once

#include <cstddef>
#include <vector>

#include "worker/reducer/parameter_ref.h"

namespace ddprun {

// A bucket is full once it holds this many bytes. The first is small, so that communication starts early in the
// backward pass; the others are large, so that latency matters little. PyTorch's values.
struct BucketLimits {
  std::size_t first_bytes = 1 << 20;
  std::size_t bytes = 25 << 20;
};

// The place of a parameter's gradient in its bucket.
struct BucketSlice {
  std::size_t parameter = 0;  // index in the list of parameters
  std::size_t offset = 0;     // elements from the start of the bucket; aligned to 64 bytes
  std::size_t count = 0;
};

// Gradients that are reduced together: one flat buffer of one type.
struct Bucket {
  DType dtype = DType::float32;
  std::size_t count = 0;  // elements, padding included
  std::vector<BucketSlice> slices;
};

// Assigns the parameters to buckets in reverse order, since gradients become ready in about that order; one element
// type per bucket. Buckets are ordered by their first slices; those of delayed parameters (indices) come after all
// others, each of those that are alone (indices) has a bucket of its own, and no bucket has both parameters that are
// apart (indices) and others. A pure function of names, shapes and types, so every rank and every run gets the same
// layout.
std::vector<Bucket> plan_buckets(const std::vector<ParameterRef>& parameters, const BucketLimits& limits,
                                 const std::vector<std::size_t>& delayed = {},
                                 const std::vector<std::size_t>& alone = {},
                                 const std::vector<std::size_t>& apart = {});

}  // namespace ddprun
