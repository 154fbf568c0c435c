#include "worker/trainer/commands/step_traffic.h"

#include <string_view>

#include "common/rounding.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

// Returns the bytes that a chain of hooks sends as a share of those of an all-reduce of float32 gradients: its last
// hook does the sending.
std::optional<double> sent_share(const TrainConfig::Parallel& config, int ranks) {
  const std::string_view chain = config.hook;
  if (chain.find("powersgd") != std::string_view::npos) return std::nullopt;
  const std::string_view last = chain.substr(chain.rfind('+') + 1);  // the whole chain if there is no +
  if (last == "int8") return 0.25;
  if (last == "int4") return (0.5 + 4.0 / 128) / 4;                      // with a scale for each 128 elements
  if (last == "topk") return ranks * config.hook_options.topk_fraction;  // an index and a value, to each other rank
  if (last == "fp16" || last == "bf16") return 0.5;
  if (last != "allreduce") return std::nullopt;
  return chain == last ? 1 : 0.5;  // only casts come before the last hook
}

double rest_of(int ranks) {
  return static_cast<double>(ranks - 1) / ranks;
}

// The bytes sent for gradients and parameters of which so many bytes are the same at these ranks, and divided among
// shards of them.
double sent_for(const TrainConfig::Parallel& config, double parameters, double share, double passes, int ranks,
                int shards) {
  const double exchange = rest_of(shards) * parameters;                       // an all-gather or a reduce-scatter
  const double averages = 2 * rest_of(ranks / shards) * parameters / shards;  // over the replicas of a part
  const bool is_whole = config.zero == 0 || rounds_buckets(config.hook);
  if (config.zero < 2) return (is_whole ? 2 : 1) * exchange * share + (config.zero == 1 ? exchange : 0);
  const double gradients = passes * (exchange + averages) * share;
  if (config.zero == 2) return gradients + exchange;
  const double kept =
      config.micro_batches > 0 ? 1 : passes;  // gathers of a parameter that stays after its forward pass
  return gradients + (config.sharded.reshard_after_forward ? 2 * passes : kept) * exchange;
}

}  // namespace

std::int64_t micro_batches_of_step(const TrainConfig& config, int ranks) {
  const auto samples = divide_up<std::int64_t>(batch_sizes(config.train, ranks).step, ranks);
  return divide_up(samples, micro_batch_size(config, ranks));
}

std::optional<std::size_t> bytes_sent_in_step(const TrainConfig::Parallel& config, const SharedBytes& bytes,
                                              std::int64_t micro_batches, int ranks) {
  const auto share = sent_share(config, ranks);
  if (!share) return std::nullopt;
  const auto passes = static_cast<double>(micro_batches);
  const int shards = config.sharded.shard_group > 0 ? config.sharded.shard_group : ranks;
  double sent = sent_for(config, static_cast<double>(bytes.parameters), *share, passes, ranks, shards);
  if (const int parts = config.ranks.on("expert"); parts > 1)
    sent += sent_for(config, static_cast<double>(bytes.experts), *share, passes, ranks / parts, shards / parts);
  if (config.ddp.broadcast_buffers)
    sent += (config.zero < 2 || config.micro_batches > 0 ? 1 : passes) * rest_of(ranks) *
            static_cast<double>(bytes.buffers);
  return static_cast<std::size_t>(sent);
}

}  // namespace ddprun::trainer
