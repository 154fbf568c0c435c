#include "ddprun/worker/parallel/shard_units.h"

#include <algorithm>
#include <limits>
#include <map>

namespace ddprun {
namespace {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

// Returns the indices of a module's parameters among those that are divided.
std::vector<std::size_t> indices_of(const nn::Module& module, const NamedVariables& parameters) {
  std::vector<std::size_t> indices;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const auto same = [&](const auto& each) { return each.second.is(parameter); };
    const auto found = std::ranges::find_if(parameters, same);
    if (found != parameters.end()) indices.push_back(static_cast<std::size_t>(found - parameters.begin()));
  }
  return indices;
}

// Returns the buckets of these parameters, one for each type.
std::vector<Bucket> buckets_of(const std::vector<std::size_t>& indices, const NamedVariables& parameters) {
  std::vector<ParameterRef> references;
  for (const std::size_t index : indices) {
    const auto& [name, parameter] = parameters[index];
    references.push_back(
        {.name = name, .shape = parameter.shape().to_vector(), .dtype = parameter.dtype(), .data = nullptr});
  }
  constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  auto buckets = plan_buckets(references, {.first_bytes = no_limit, .bytes = no_limit});
  for (Bucket& bucket : buckets)
    for (BucketSlice& slice : bucket.slices) slice.parameter = indices[slice.parameter];
  return buckets;
}

}  // namespace

ShardUnits plan_units(nn::Module& model, const NamedVariables& parameters) {
  const auto users = model.parameter_users();
  std::vector<std::vector<std::size_t>> used;  // indices of parameters by user
  std::vector<std::vector<std::size_t>> own;   // those that no earlier user has
  std::vector<bool> taken(parameters.size(), false);
  for (const auto& [path, module] : users) {
    used.push_back(indices_of(*module, parameters));
    auto& first = own.emplace_back();
    for (const std::size_t index : used.back()) {
      if (!taken[index]) first.push_back(index);
      taken[index] = true;
    }
  }
  ShardUnits units;
  std::vector<std::size_t> bucket_of(parameters.size());
  for (std::size_t u = users.size(); u-- > 0;) {
    for (Bucket& bucket : buckets_of(own[u], parameters)) {
      for (const BucketSlice& slice : bucket.slices) bucket_of[slice.parameter] = units.buckets.size();
      units.buckets.push_back(std::move(bucket));
    }
  }
  for (std::size_t u = 0; u < users.size(); ++u) {
    std::vector<std::size_t> buckets;
    for (const std::size_t index : used[u])
      if (std::ranges::find(buckets, bucket_of[index]) == buckets.end()) buckets.push_back(bucket_of[index]);
    if (!buckets.empty()) units.users.push_back({users[u].first, users[u].second, std::move(buckets)});
  }
  return units;
}

}  // namespace ddprun
