#pragma once

#include <cstdint>
#include <vector>

namespace ddprun::data {

// The order of an epoch's samples, common to all ranks: that of torch.utils.data.DistributedSampler for the same size,
// seed and epoch, or ascending without shuffle. Throws Errc::usage for an empty dataset, Errc::unsupported when 2^32 /
// 20 samples or more are to be shuffled (PyTorch changes its algorithm there).
std::vector<std::int64_t> epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch, bool shuffle);

// The samples that a rank sees in an epoch, and their order.
struct SamplerOptions {
  std::int64_t size = 0;  // that of the dataset
  int world_size = 1;
  int rank = 0;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  bool shuffle = true;
  bool drop_last =
      false;  // true: leave out the tail that does not divide by world_size; false: repeat the first samples
};

// Returns exactly the indices of torch.utils.data.DistributedSampler for these options: every rank gets equally many,
// rank r those at positions r, r + world_size, ... of epoch_order(). For a program that is ported from PyTorch;
// ddprun-worker repeats no sample (epoch_plan.h). Throws what epoch_order() throws.
std::vector<std::int64_t> distributed_indices(const SamplerOptions& options);

// For evaluation: places r, r + world_size, ... below size. None comes twice or is left out; ranks may differ by one.
std::vector<std::int64_t> evaluation_indices(std::int64_t size, int world_size, int rank);

// torch.randperm(size, generator=torch.Generator().manual_seed(seed)) on the CPU.
std::vector<std::int64_t> torch_randperm(std::int64_t size, std::uint64_t seed);

}  // namespace ddprun::data
