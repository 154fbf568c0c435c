#include "worker/parallel/forms/expert/expert_parallel.h"

#include "common/error.h"
#include "worker/parallel/forms/expert/token_exchange.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

std::vector<nn::MixtureOfExperts*> layers_for(nn::Module& model, int ranks) {
  auto layers = mixtures_of_experts(model);
  if (layers.empty()) throw make_error(Errc::usage, "expert parallelism: the model has no experts");
  for (const auto* layer : layers)
    if (layer->options().experts % ranks != 0)
      throw make_error(Errc::usage, "expert parallelism: {} experts are no multiple of {} ranks",
                       layer->options().experts, ranks);
  return layers;
}

// Experts' parameters are the modules c_fc and c_proj of a layer.
std::vector<std::string> parameters_of_experts(nn::Module& model, const std::vector<nn::MixtureOfExperts*>& layers) {
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : model.named_parameters())
    for (const auto* layer : layers)
      for (const auto& [name, own] : layer->named_parameters())
        if (own.is(parameter) && !name.starts_with("router.")) paths.push_back(path);
  return paths;
}

// Returns the ranks in one group of the ranks of another.
std::vector<std::int64_t> ranks_in(const ProcessGroup& routing, ProcessGroup& group) {
  std::vector<std::int64_t> own{routing.rank()}, all(static_cast<std::size_t>(group.size()));
  group.allgather(span_of(own), span_of(all), {.blocking = true});
  return all;
}

}  // namespace

std::vector<nn::MixtureOfExperts*> mixtures_of_experts(nn::Module& model) {
  std::vector<nn::MixtureOfExperts*> layers;
  model.for_each_module([&](nn::Module& module) {
    if (auto* layer = dynamic_cast<nn::MixtureOfExperts*>(&module)) layers.push_back(layer);
  });
  return layers;
}

ExpertParallel::ExpertParallel(nn::Module& model, ProcessGroup& group, ProcessGroup& routing)
    : group_(group),
      routing_(routing),
      routing_ranks_(ranks_in(routing, group)),
      shards_("expert", group),
      layers_(layers_for(model, group.size())) {
  align_ranks(group, model.named_parameters(), model.named_buffers());
  for (const auto& path : parameters_of_experts(model, layers_)) shards_.shard(model, path, 0);
  for (auto* layer : layers_) layer->set_exchange(this);
}

ExpertParallel::~ExpertParallel() {
  for (auto* layer : layers_) layer->set_exchange(nullptr);
}

// In training one collective has both, so that a rank waits for the others once.
ExpertParallel::Exchanged ExpertParallel::exchange(const nn::ExpertCounts& counts, const nn::ExpertCounts& numbers) {
  if (numbers.empty()) return {exchange_counts(counts, group_), {}};
  nn::ExpertCounts own = counts;
  own.insert(own.end(), numbers.begin(), numbers.end());
  const auto ranks = static_cast<std::size_t>(routing_.size()), experts = counts.size() / routing_ranks_.size();
  nn::ExpertCounts all(ranks * own.size());
  group_.run((ranks - 1) * own.size() * sizeof(own[0]),
             [&] { routing_.allgather(span_of(own), span_of(all), {.blocking = true}); });
  Exchanged result{.received = {}, .sums = nn::ExpertCounts(numbers.size())};
  for (const std::int64_t rank : routing_ranks_) {
    const auto first = all.begin() + rank * std::ssize(own) + static_cast<std::ptrdiff_t>(experts) * group_.rank();
    result.received.insert(result.received.end(), first, first + static_cast<std::ptrdiff_t>(experts));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < numbers.size(); ++i) result.sums[i] += all[rank * own.size() + counts.size() + i];
  return result;
}

ExpertParallel::Results ExpertParallel::run(const Variable& rows, const nn::ExpertCounts& counts,
                                            const nn::ExpertCounts& numbers, const Compute& compute) {
  auto [received, sums] = exchange(counts, numbers);
  const ExpertRoutes routes = routes_of(counts, received, group_.size());
  Variable results = return_from_experts(compute(send_to_experts(rows, routes, group_), routes.own), routes, group_);
  return {std::move(results), std::move(sums)};
}

}  // namespace ddprun
