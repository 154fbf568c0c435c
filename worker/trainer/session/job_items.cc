#include "worker/trainer/session/job_items.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/version.h"
#include "worker/digest/crc32c.h"
#include "worker/trainer/session/source_digest.h"

namespace ddprun::trainer {
namespace {

void add_file(SharedItems& items, std::string name, const std::filesystem::path& file) {
  if (!file.empty()) items.push_back({std::move(name), file_digest(file)});
}

// Returns a text such as "60000 samples of 1x28x28 from files" or "10000 computed samples of 16".
std::string summary_of(const data::Dataset& set, const std::vector<data::Source>& sources) {
  const auto shape = fmt::format("{}", fmt::join(set.layout().input_shape, "x"));
  if (sources.empty()) return fmt::format("{} computed samples of {}", set.size(), shape);
  return fmt::format("{} samples of {} from files", set.size(), shape);
}

// Returns a digest of some of a plugin's samples, spread evenly: nothing else is known of them.
std::string digest_of_samples(const data::Dataset& set) {
  constexpr std::int64_t most = 16;
  std::vector<std::byte> input(set.layout().input_bytes()), target(set.layout().target_bytes());
  const auto count = std::min(most, set.size());
  std::uint32_t crc = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    set.read(count == 1 ? 0 : (set.size() - 1) / (count - 1) * i, input, target);
    crc = crc32c(target, crc32c(input, crc));
  }
  return fmt::format("CRC-32C {:08x}", crc);
}

void add_data(SharedItems& items, const std::string& name, const data::Dataset& set, bool is_plugins) {
  const auto sources = set.sources();
  items.push_back({name, summary_of(set, sources)});
  for (auto& item : digests_of(sources)) items.push_back(std::move(item));
  if (sources.empty() && is_plugins) items.push_back({"samples of " + name, digest_of_samples(set)});
}

}  // namespace

SharedItems items_of_settings(const Settings& settings) {
  SharedItems items;
  for (const auto& setting : settings.all()) {
    if (setting.spec.scope == Scope::process) continue;
    const auto value = setting.print();
    items.push_back({setting.key, setting.type != "path" ? value : value.empty() ? "no path" : "a path"});
  }
  return items;
}

SharedItems items_of_job(std::string_view command, const TrainConfig& config, const Settings& settings,
                         const Datasets& datasets, const plugin::Registry& registry) {
  SharedItems items{{"the version of ddprun-worker", std::string(project_version())},
                    {"the command of ddprun-worker", std::string(command)}};
  add_file(items, "the file of model.plugin", config.model.plugin);
  for (auto& item : items_of_settings(settings)) items.push_back(std::move(item));
  add_file(items, "the file of model.weights", config.model.weights);
  add_file(items, "the file of distill.weights", config.distill.weights);
  if (!config.data.tokenizer.empty() && config.data.name == "text")
    for (const auto* name : {"vocab.json", "merges.txt"})
      add_file(items, fmt::format("{} of data.tokenizer", name), config.data.tokenizer / name);
  const bool is_plugins = registry.datasets.contains(config.data.name);
  add_data(items, "the training data", *datasets.train, is_plugins);
  add_data(items, "the test data", *datasets.test, is_plugins);
  return items;
}

}  // namespace ddprun::trainer
