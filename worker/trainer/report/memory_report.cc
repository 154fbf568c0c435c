#include "worker/trainer/report/memory_report.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "common/byte_text.h"
#include "worker/comm/collectives.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns "h.3" for "h.3.attn.c_attn.weight", "conv1" for "conv1.weight".
std::string part_of(const std::string& path) {
  const auto first = path.find('.');
  if (first == std::string::npos) return path;
  const auto second = path.find('.', first + 1);
  const std::string next = path.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  return is_number(next) ? path.substr(0, second) : path.substr(0, first);
}

// The parts in the order of first use.
class Parts {
 public:
  MemoryUse& of(const std::string& path) {
    const std::string name = path.empty() ? "(model)" : part_of(path);
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.name == name; });
    return found != all_.end() ? found->use : all_.emplace_back(ModuleMemory{name, {}}).use;
  }
  std::vector<ModuleMemory> take() { return std::move(all_); }

 private:
  std::vector<ModuleMemory> all_;
};

// Calls add(path, kind, bytes) for each tensor.
template <class Add>
void for_each_tensor(const TrainState& state, Add add) {
  std::map<std::string, const Variable*> parts;
  for (const auto& [name, part] : state.parts) parts[name] = &part;
  for (const auto& [name, whole] : state.model->named_parameters()) {
    const auto found = parts.find(name);
    if (found == parts.end() && !whole.value().storage()->is_present()) continue;  // it is another rank's
    const Variable& part = found == parts.end() ? whole : *found->second;
    add(name, &MemoryUse::parameters, (whole.value().storage()->is_present() ? whole : part).value().bytes());
    const Tensor& gradient = (whole.grad().defined() ? whole : part).grad();
    if (gradient.defined()) add(name, &MemoryUse::gradients, gradient.bytes());
  }
  for (const auto& [name, buffer] : state.model->named_buffers()) add(name, &MemoryUse::parameters, buffer.bytes());
  for (const auto& [name, tensor] : state.optimizer->state()) add(name, &MemoryUse::optimizer, tensor.bytes());
}

std::size_t bytes_of(const MemoryByOwner& bytes, MemoryOwner owner) {
  return bytes[static_cast<std::size_t>(owner)];
}

std::string json_of(const MemoryByOwner& bytes, std::size_t activation_peak) {
  return fmt::format(
      R"("parameters": {}, "gradients": {}, "optimizer": {}, "casts": {}, "communication": {}, "activation_peak": {})",
      bytes_of(bytes, MemoryOwner::parameters), bytes_of(bytes, MemoryOwner::gradients),
      bytes_of(bytes, MemoryOwner::optimizer), bytes_of(bytes, MemoryOwner::casts),
      bytes_of(bytes, MemoryOwner::communication), activation_peak);
}

std::string json_of(const DeviceMemoryReport& report) {
  const DeviceMemoryUse& use = report.on_device;
  return fmt::format(
      R"(, "device": "{}", "device_bytes": {{{}, "workspaces": {}, "kept": {}, "others": {}, "free": {}, "total": {}}}, )"
      R"("host_bytes": {{{}}})",
      to_string(report.device), json_of(use.owners, report.activations.device), use.workspaces, use.kept, use.others,
      use.free, use.total, json_of(report.on_host, report.activations.host));
}

MemoryUse use_of(const MemoryByOwner& bytes, std::size_t activation_peak) {
  return {.parameters = bytes_of(bytes, MemoryOwner::parameters),
          .gradients = bytes_of(bytes, MemoryOwner::gradients),
          .optimizer = bytes_of(bytes, MemoryOwner::optimizer),
          .activations = activation_peak};
}

std::string row(const std::string& name, const MemoryUse& use) {
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format("{:<16} {:>10.2f} {:>10.2f} {:>10.2f} {:>11.2f}", name, mib(use.parameters), mib(use.gradients),
                     mib(use.optimizer), mib(use.activations));
}

}  // namespace

MemoryUse memory_of(const TrainState& state, std::size_t activation_peak, const ModelPeaks& peaks) {
  MemoryUse use{.activations = activation_peak};
  for_each_tensor(state, [&](const std::string&, auto kind, std::size_t bytes) { use.*kind += bytes; });
  use.gradients += state.shards.bytes();
  use.peaks = {.parameters = std::max(peaks.parameters, use.parameters),
               .gradients = std::max(peaks.gradients, use.gradients)};
  return use;
}

std::vector<ModuleMemory> memory_by_module(const TrainState& state, const std::map<std::string, std::size_t>& saved) {
  Parts parts;
  for_each_tensor(state, [&](const std::string& path, auto kind, std::size_t bytes) { parts.of(path).*kind += bytes; });
  // The path is a module's, not a tensor's.
  for (const auto& [path, bytes] : saved) parts.of(path).activations += bytes;
  return parts.take();
}

std::optional<DeviceMemoryReport> device_memory_report(const TrainState& state, const ActivationPeaks& activations) {
  const Device device = device_of(*state.model);
  if (device.type != DeviceType::cuda) return std::nullopt;
  const OwnedMemory host = memory_by_owner(Device{});
  DeviceMemoryReport report{
      .device = device, .on_device = device_memory_use(device), .on_host = host.tensors, .activations = activations};
  for (std::size_t i = 0; i < memory_owners; ++i) report.on_host[i] += host.claims[i];
  return report;
}

std::string to_json(int rank, const MemoryUse& use) {
  return fmt::format(
      R"({{"rank": {}, "parameter_bytes": {}, "gradient_bytes": {}, "optimizer_bytes": {}, "activation_peak_bytes": {}, )"
      R"("parameter_peak_bytes": {}, "gradient_peak_bytes": {}{}}})",
      rank, use.parameters, use.gradients, use.optimizer, use.activations, use.peaks.parameters, use.peaks.gradients,
      use.device ? json_of(*use.device) : "");
}

std::vector<std::string> gather_memory(const MemoryUse& own, ProcessGroup& group) {
  return all_gather_bytes(group, to_json(group.rank(), own));
}

std::vector<std::string> memory_table(const MemoryUse& all, const std::vector<ModuleMemory>& modules) {
  std::vector<std::string> lines{fmt::format("{:<16} {:>10} {:>10} {:>10} {:>11}", "memory in MiB", "parameters",
                                             "gradients", "optimizer", "activations")};
  for (const auto& [name, use] : modules) lines.push_back(row(name, use));
  MemoryUse peak = all;
  peak.parameters = std::max(all.parameters, all.peaks.parameters);
  peak.gradients = std::max(all.gradients, all.peaks.gradients);
  lines.push_back(row("all, at the peak", peak));
  if (!all.device) return lines;
  const auto& [device, on_device, on_host, activations] = *all.device;
  lines.push_back(row("of it " + to_string(device), use_of(on_device.owners, activations.device)));
  lines.push_back(row("of it the host", use_of(on_host, activations.host)));
  lines.push_back(fmt::format("{}: {} of {} free; held by {}", to_string(device), byte_text(on_device.free),
                              byte_text(on_device.total), describe(on_device)));
  return lines;
}

}  // namespace ddprun::trainer
