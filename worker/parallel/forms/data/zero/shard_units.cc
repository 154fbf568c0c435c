#include "worker/parallel/forms/data/zero/shard_units.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <ranges>

namespace ddprun {
namespace {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

// Returns the indices of a module's parameters among those that are sharded.
std::vector<std::size_t> indices_of(const nn::Module& module, const NamedVariables& parameters) {
  std::vector<std::size_t> indices;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const auto same = [&](const auto& each) { return each.second.is(parameter); };
    const auto found = std::ranges::find_if(parameters, same);
    if (found != parameters.end()) indices.push_back(static_cast<std::size_t>(found - parameters.begin()));
  }
  return indices;
}

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
constexpr BucketLimits one_of_each_type{.first_bytes = no_limit, .bytes = no_limit};

// Returns the buckets of these parameters, in which those that are shared are alone.
std::vector<Bucket> plan_some(const std::vector<std::size_t>& indices, const NamedVariables& parameters,
                              const StageTensors& stages, const BucketLimits& limits) {
  std::vector<ParameterRef> references;
  std::vector<std::size_t> alone;
  for (const std::size_t index : indices) {
    const auto& [name, parameter] = parameters[index];
    if (std::ranges::count(stages.shared, name) > 0) alone.push_back(references.size());
    references.push_back(
        {.name = name, .shape = parameter.shape().to_vector(), .dtype = parameter.dtype(), .data = nullptr});
  }
  auto buckets = plan_buckets(references, limits, {}, alone);
  for (Bucket& bucket : buckets)
    for (BucketSlice& slice : bucket.slices) slice.parameter = indices[slice.parameter];
  return buckets;
}

// A bucket is complete when the gradient of the first parameter in it is ready.
std::size_t first_parameter(const Bucket& bucket) {
  return std::ranges::min_element(bucket.slices, {}, &BucketSlice::parameter)->parameter;
}

// Returns the buckets of these parameters, none of which has both sliced ones and others, in the order in which they
// become ready.
std::vector<Bucket> buckets_of(const std::vector<std::size_t>& indices, const NamedVariables& parameters,
                               const StageTensors& stages, const BucketLimits& limits,
                               const std::vector<std::string>& sliced) {
  std::vector<std::size_t> of_slices, others;
  for (const std::size_t index : indices)
    (std::ranges::count(sliced, parameters[index].first) > 0 ? of_slices : others).push_back(index);
  if (of_slices.empty()) return plan_some(indices, parameters, stages, limits);
  std::vector<Bucket> all;
  std::ranges::merge(plan_some(of_slices, parameters, stages, limits), plan_some(others, parameters, stages, limits),
                     std::back_inserter(all), std::greater<>(), first_parameter, first_parameter);
  return all;
}

// Returns by stage the indices of the parameters that it has.
std::map<int, std::vector<std::size_t>> indices_by_stage(const NamedVariables& parameters, const StageTensors& stages) {
  std::map<int, std::vector<std::size_t>> all;
  if (stages.parameters.empty()) {
    all[0].resize(parameters.size());
    std::iota(all[0].begin(), all[0].end(), std::size_t{0});
  }
  for (const auto& [stage, names] : stages.parameters)
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (std::ranges::count(names, parameters[p].first) > 0) all[stage].push_back(p);
  return all;
}

}  // namespace

ShardUnits plan_units(nn::Module& model, const NamedVariables& parameters, const StageTensors& stages,
                      const std::vector<std::string>& sliced) {
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
    for (Bucket& bucket : buckets_of(own[u], parameters, stages, one_of_each_type, sliced)) {
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

std::vector<Bucket> plan_buckets_of_stages(const NamedVariables& parameters, const StageTensors& stages,
                                           const BucketLimits& limits, const std::vector<std::string>& sliced) {
  const auto by_stage = indices_by_stage(parameters, stages);
  std::vector<Bucket> all;
  std::vector<bool> taken(parameters.size(), false);
  for (auto [stage, indices] : by_stage | std::views::reverse) {
    std::erase_if(indices, [&](std::size_t index) { return taken[index]; });
    for (const std::size_t index : indices) taken[index] = true;
    for (Bucket& bucket : buckets_of(indices, parameters, stages, limits, sliced)) all.push_back(std::move(bucket));
  }
  return all;
}

std::map<int, std::vector<std::size_t>> buckets_by_stage(const std::vector<Bucket>& buckets,
                                                         const NamedVariables& parameters, const StageTensors& stages) {
  std::map<int, std::vector<std::size_t>> all;
  for (const auto& [stage, indices] : indices_by_stage(parameters, stages))
    for (std::size_t b = 0; b < buckets.size(); ++b)
      if (std::ranges::any_of(buckets[b].slices, [&, &of = indices](const BucketSlice& slice) {
            return std::ranges::count(of, slice.parameter) > 0;
          }))
        all[stage].push_back(b);
  return all;
}

}  // namespace ddprun
