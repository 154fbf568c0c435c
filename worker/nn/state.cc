#include "worker/nn/state.h"

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/nn/name_pattern.h"

namespace ddprun::nn {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Returns parameters, then buffers: handles on the module's memory.
NamedTensors tensors_of(const Module& module) {
  NamedTensors all;
  for (const auto& [name, parameter] : module.named_parameters()) all.emplace_back(name, parameter.value());
  for (auto& buffer : module.named_buffers()) all.push_back(std::move(buffer));
  return all;
}

// The tensors of the file with their destinations.
struct LoadPlan {
  std::vector<std::pair<const TensorInfo*, Tensor>> copies;
  LoadReport report;
};

bool is_ignored(const std::string& name, const LoadOptions& options) {
  const auto& suffixes = options.ignored_suffixes;
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const auto& suffix) { return name.ends_with(suffix); });
}

LoadPlan plan_for(const Module& module, const TensorSource& file, const LoadOptions& options) {
  LoadPlan plan;
  const std::string& prefix = options.prefix;
  const NamedTensors targets = tensors_of(module);
  for (const auto& [name, target] : targets) {
    if (matches_any(options.excluded, name)) continue;
    if (const TensorInfo* info = file.find(prefix + name)) {
      plan.copies.emplace_back(info, target);
      plan.report.loaded.push_back(name);
    } else {
      plan.report.missing.push_back(name);
    }
  }
  for (const TensorInfo& info : file.tensors()) {
    if (!info.name.starts_with(prefix) || is_ignored(info.name, options)) continue;
    const std::string name = info.name.substr(prefix.size());
    if (matches_any(options.excluded, name)) continue;
    const auto is_target = [&](const auto& each) { return each.first == name; };
    if (std::none_of(targets.begin(), targets.end(), is_target)) plan.report.unexpected.push_back(name);
  }
  return plan;
}

void check(const LoadPlan& plan, const std::string& path, bool strict) {
  for (const auto& [info, target] : plan.copies) {
    if (Shape(info->shape) == target.shape()) continue;
    throw make_error(Errc::mismatch, "{}: tensor {} has shape {}, the model needs {}", path, info->name,
                     to_string(info->shape), to_string(target.shape()));
  }
  const LoadReport& report = plan.report;
  if (!strict || (report.missing.empty() && report.unexpected.empty())) return;
  throw make_error(Errc::mismatch, "{} does not fit the model: missing {}; unexpected {}", path,
                   report.missing.empty() ? "nothing" : fmt::format("{}", fmt::join(report.missing, ", ")),
                   report.unexpected.empty() ? "nothing" : fmt::format("{}", fmt::join(report.unexpected, ", ")));
}

}  // namespace

LoadReport load_state(Module& module, const std::filesystem::path& path, const LoadOptions& options) {
  return load_state(module, checkpoint::SafetensorsFile(path), path.string(), options);
}

LoadReport load_state(Module& module, const TensorSource& file, const std::string& name, const LoadOptions& options) {
  LoadPlan plan = plan_for(module, file, options);
  check(plan, name, options.strict);
  for (auto& [info, target] : plan.copies) {
    Tensor read = Tensor::empty(info->shape, info->dtype);
    file.read(*info, {static_cast<std::byte*>(read.raw()), read.bytes()});
    target.copy_from(read.to(target.dtype()).to(target.device()));
  }
  return std::move(plan.report);
}

void save_state(const Module& module, const std::filesystem::path& path) {
  std::vector<checkpoint::TensorView> views;
  NamedTensors tensors = tensors_of(module);
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.to(Device{});
    views.push_back({name, tensor.dtype(), tensor.shape().to_vector(),
                     std::span(static_cast<const std::byte*>(tensor.raw()), tensor.bytes())});
  }
  const std::filesystem::path unfinished = path.string() + ".tmp";
  checkpoint::FileWriter out(unfinished);
  checkpoint::write_safetensors(out, views);
  out.finish();
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error)
    throw make_error(Errc::io, "cannot rename {} to {}: {}", unfinished.string(), path.string(), error.message());
}

}  // namespace ddprun::nn
