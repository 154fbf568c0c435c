#include "worker/trainer/config/train_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/trainer/config/keys.h"

namespace ddprun::trainer {

std::vector<std::string> texts(const std::vector<std::string_view>& names) {
  return {names.begin(), names.end()};
}

std::vector<std::string> joined(std::vector<std::string> names, const std::vector<std::string>& added) {
  for (const auto& name : added) {
    if (std::ranges::count(names, name) > 0)
      throw make_error(Errc::usage, "model.plugin: the plugin adds the name {}, which exists", name);
    names.push_back(name);
  }
  return names;
}

void bind(Settings& settings, TrainConfig& config, const plugin::Registry& registry) {
  bind_model(settings, config.model, registry);
  bind_fine_tuning(settings, config.model);
  bind_transformers(settings, config.model);
  bind_experts(settings, config.model);
  bind_data(settings, config.data, registry);
  bind_train(settings, config.train, registry);
  bind_eval(settings, config.eval);
  bind_optim(settings, config.optim);
  bind_schedule(settings, config.optim);
  bind_dist(settings, config.dist);
  bind_checkpoint(settings, config.checkpoint);
  bind_recovery(settings, config.recovery);
  bind_metrics(settings, config.metrics);
  bind_parallel(settings, config.parallel);
  bind_distill(settings, config.distill);
  bind_tokenize(settings, config.tokenize);
  bind_generate(settings, config.generate);
  bind_predict(settings, config.predict);
  bind_profile(settings, config.profile);
  bind_quantize(settings, config.quantize);
  registry.bind(settings);
}

std::string reference_page() {
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  return "# Keys of a train.cfg\n\n"
         "Made by `ddprun-worker --reference`. On the command line a key is written `--section.key=value`.\n" +
         settings.reference();
}

std::vector<std::int64_t> parse_extents(const std::string& text) {
  std::vector<std::int64_t> extents;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" ,x", at)) != std::string::npos) {
    const auto end = std::min(text.find_first_of(" ,x", at), text.size());
    std::int64_t extent = 0;
    const auto [stop, status] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (status != std::errc{} || stop != text.data() + end || extent < 1 || extent > 1'000'000)
      throw make_error(Errc::usage, "expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
    extents.push_back(extent);
    at = end;
  }
  return extents;
}

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" ,", at)) != std::string::npos) {
    const auto end = std::min(text.find_first_of(" ,", at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end;
  }
  return names;
}

DType compute_dtype(const TrainConfig::Train& train) {
  if (train.precision == "bf16") return DType::bfloat16;
  return train.precision == "fp16" ? DType::float16 : DType::float32;
}

void settle_batch_size(Settings& settings, const TrainConfig& config) {
  if (config.train.global_batch_size == 0) return;
  const auto batch = settings.find("train.batch_size")->source;
  const auto global = settings.find("train.global_batch_size")->source;
  if (batch.origin < global.origin) settings.assign("train.batch_size", "0", global);
  if (batch.origin > global.origin && config.train.batch_size > 0)
    settings.assign("train.global_batch_size", "0", batch);
}

// A name that is no device's is left to validate().
void settle_device(Settings& settings, const TrainConfig& config) {
  if (settings.find("train.device")->source.origin != Origin::fallback) return;
  const auto names = parse_names(config.parallel.devices);
  if (std::ranges::any_of(names, [](const auto& name) { return name.starts_with("cuda"); }))
    settings.assign("train.device", "cuda", settings.find("parallel.devices")->source);
}

int parts_of_step(const TrainConfig::Train& t, int world_size) {
  return t.shards > 0 ? static_cast<int>(t.shards) : world_size;
}

BatchSizes batch_sizes(const TrainConfig::Train& t, int world_size) {
  const int parts = parts_of_step(t, world_size);
  if (t.global_batch_size > 0)
    return {.step = t.global_batch_size, .micro = divide_up(divide_up(t.global_batch_size, parts), t.accumulate)};
  std::int64_t step = 0;
  if (__builtin_mul_overflow(t.batch_size * t.accumulate, std::int64_t{parts}, &step))
    step = std::numeric_limits<std::int64_t>::max();
  return {.step = step, .micro = t.batch_size};
}

std::map<std::string, std::string> settings_that_decide(const Settings& settings) {
  std::map<std::string, std::string> deciding;
  for (const auto& setting : settings.all())
    if (setting.spec.scope == Scope::run) deciding[setting.key] = setting.print();
  return deciding;
}

}  // namespace ddprun::trainer
