#include "worker/trainer/report/device_fault.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/host_port.h"
#include "worker/comm/error_file.h"
#include "worker/trainer/config/device_settings.h"

namespace ddprun::trainer {
namespace {

using Texts = std::vector<std::string>;

Texts for_activations(const TrainConfig& c) {
  Texts texts;
  if (c.train.batch_size > 1) texts.emplace_back("a smaller train.batch_size with a larger train.accumulate");
  if (c.train.precision == "fp32") texts.emplace_back("train.precision = bf16");
  if (c.train.recompute == "none") texts.emplace_back("train.recompute = blocks");
  if (c.model.name == "gpt") texts.emplace_back("a smaller model.context");
  return texts;
}

// Returns whether ZeRO can divide it among the ranks in a job on devices.
bool can_divide(const TrainConfig& c, int stage) {
  TrainConfig divided = c;
  divided.parallel.zero = stage;
  return c.parallel.zero < stage && runs_on_devices(divided);
}

Texts for_optimizer(const TrainConfig& c) {
  Texts texts;
  if (can_divide(c, 1)) texts.emplace_back("parallel.zero = 1 with more ranks");
  if (c.optim.name != "sgd") texts.emplace_back("optim.name = sgd, which keeps one number for each weight at most");
  if (c.optim.name == "sgd" && c.optim.momentum > 0) texts.emplace_back("optim.momentum = 0");
  if (c.train.ema > 0) texts.emplace_back("train.ema = 0");
  return texts;
}

Texts for_gradients(const TrainConfig& c) {
  return {can_divide(c, 2) ? "parallel.zero = 2 with more ranks" : "a model with fewer parameters"};
}

Texts for_parameters(const TrainConfig& c) {
  return {can_divide(c, 3) ? "parallel.zero = 3 with more ranks" : "a model with fewer parameters"};
}

Texts for_owner(MemoryOwner owner, const TrainConfig& c) {
  switch (owner) {
    case MemoryOwner::activations:
      return for_activations(c);
    case MemoryOwner::parameters:
      return for_parameters(c);
    case MemoryOwner::gradients:
      return for_gradients(c);
    case MemoryOwner::optimizer:
      return for_optimizer(c);
    case MemoryOwner::casts:
      return {"train.precision = fp32, where activations are small"};
    case MemoryOwner::communication:
      return {"parallel.hook = allreduce"};
  }
  return {};
}

// Returns the owners with what they hold and want, the largest first; but activations before all others if they want
// more, as they are the easiest to make smaller.
std::vector<MemoryOwner> owners_by_size(const OutOfDeviceMemory& error) {
  const auto bytes = [&](MemoryOwner owner) {
    return error.use().of(owner) + (owner == error.wanted_for() ? error.wanted() : 0) +
           (owner == MemoryOwner::activations ? error.use().workspaces : 0);
  };
  std::vector<MemoryOwner> owners;
  for (std::size_t i = 0; i < memory_owners; ++i) owners.push_back(static_cast<MemoryOwner>(i));
  const bool first_activations = error.wanted_for() == MemoryOwner::activations;
  const auto rank = [&](MemoryOwner owner) {
    return std::pair(first_activations && owner == MemoryOwner::activations, bytes(owner));
  };
  std::stable_sort(owners.begin(), owners.end(), [&](auto a, auto b) { return rank(a) > rank(b); });
  std::erase_if(owners, [&](auto owner) { return bytes(owner) == 0; });
  return owners;
}

}  // namespace

std::string memory_advice(const OutOfDeviceMemory& error, const TrainConfig& config) {
  constexpr std::size_t most = 3, most_of_owner = 2;
  Texts texts;
  if (error.use().others > error.use().total / 4)
    texts.emplace_back("another device (nvidia-smi shows the processes on this one, CUDA_VISIBLE_DEVICES chooses)");
  for (const MemoryOwner owner : owners_by_size(error)) {
    Texts of_owner = for_owner(owner, config);
    of_owner.resize(std::min(of_owner.size(), most_of_owner));
    for (auto& text : of_owner)
      if (std::ranges::count(texts, text) == 0) texts.push_back(std::move(text));
  }
  texts.resize(std::min(texts.size(), most));
  return fmt::format("{}", fmt::join(texts, " or "));
}

bool is_device_fault(const Error& error, Device device) {
  return device.type == DeviceType::cuda && error.code() != Errc::usage && !is_consequence(error.code());
}

Error fault_of_rank(const Error& error, const TrainConfig& config, const WorkerEnv& place, Device device) {
  if (!is_device_fault(error, device)) return error;
  const auto* const memory = dynamic_cast<const OutOfDeviceMemory*>(&error);
  const std::string advice = memory == nullptr ? "" : memory_advice(*memory, config);
  return make_error(error.code(), "rank {} ({}) on host {}: {}{}{}", place.rank, to_string(device), local_host_name(),
                    error.what(), advice.empty() ? "" : "; what helps: ", advice);
}

}  // namespace ddprun::trainer
