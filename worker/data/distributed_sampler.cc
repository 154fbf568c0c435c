#include "worker/data/distributed_sampler.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "common/error.h"
#include "common/rounding.h"

namespace ddprun::data {
namespace {

constexpr std::int64_t randperm_limit = std::numeric_limits<std::uint32_t>::max() / 20;

void check(const SamplerOptions& o) {
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size)
    throw make_error(Errc::internal, "sampler: rank {} of a world of {}", o.rank, o.world_size);
  if (o.drop_last && o.size < o.world_size)
    throw make_error(Errc::usage, "a dataset of {} samples leaves nothing for {} ranks when the tail is dropped",
                     o.size, o.world_size);
}

}  // namespace

std::vector<std::int64_t> torch_randperm(std::int64_t size, std::uint64_t seed) {
  if (size >= randperm_limit)
    throw make_error(Errc::unsupported, "cannot shuffle {} samples as PyTorch does: below {} is supported", size,
                     randperm_limit);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // PyTorch seeds the standard engine with the low half of the seed, then runs Fisher and Yates from the front.
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const std::size_t offset = engine() % (order.size() - i);
    std::swap(order[i], order[i + offset]);
  }
  return order;
}

std::vector<std::int64_t> epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch, bool shuffle) {
  if (size <= 0) throw make_error(Errc::usage, "the dataset is empty: there is nothing to sample from");
  if (shuffle) return torch_randperm(size, seed + static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

std::vector<std::int64_t> distributed_indices(const SamplerOptions& o) {
  const auto order = epoch_order(o.size, o.seed, o.epoch, o.shuffle);
  check(o);
  const std::int64_t per_rank = o.drop_last ? o.size / o.world_size : divide_up(o.size, o.world_size);
  std::vector<std::int64_t> own;
  own.reserve(static_cast<std::size_t>(per_rank));
  for (std::int64_t i = 0; i < per_rank; ++i) {
    const std::int64_t place = (i * o.world_size + o.rank) % o.size;  // beyond the end the first ones follow again
    own.push_back(order[static_cast<std::size_t>(place)]);
  }
  return own;
}

std::vector<std::int64_t> evaluation_indices(std::int64_t size, int world_size, int rank) {
  std::vector<std::int64_t> own;
  for (std::int64_t i = rank; i < size; i += world_size) own.push_back(i);
  return own;
}

}  // namespace ddprun::data
