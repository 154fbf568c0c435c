#include "worker/trainer/state/model_devices.h"

#include <algorithm>
#include <chrono>

#include "common/error.h"
#include "worker/nn/quantization/quantize.h"
#include "worker/parallel/forms/pipeline/model_split.h"
#include "worker/profiler/operation_recorder.h"
#include "worker/profiler/summary.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

// Returns the seconds that each module directly below the model takes for its forward pass.
std::vector<double> measure(nn::Module& model, const Tensor& batch) {
  const NoGradScope no_grad;
  model.train(false);
  model(Variable(batch));  // allocates what is made once
  const auto start = std::chrono::steady_clock::now();
  profiler::OperationRecorder recorder([start] { return std::chrono::steady_clock::now() - start; });
  model(Variable(batch));
  model.train(true);
  const auto modules = model.module_names();
  std::vector<double> seconds(modules.size());
  for (const auto& row : profiler::rows_of(recorder.take())) {
    const auto found = std::ranges::find(modules, row.module.substr(0, row.module.find('.')));
    if (found != modules.end()) seconds[static_cast<std::size_t>(found - modules.begin())] += row.time.count();
  }
  return seconds;
}

std::vector<std::string> measured_split(nn::Module& model, const Tensor& batch, std::size_t devices) {
  const auto modules = model.module_names();
  if (modules.size() < devices)
    throw make_error(Errc::usage, "the model has {} modules for {} devices", modules.size(), devices);
  std::vector<std::string> names;
  for (const std::size_t begin : cut_evenly(measure(model, batch), devices)) names.push_back(modules[begin]);
  return names;
}

void split(const TrainConfig& config, nn::Module& model, const data::SampleLayout& layout,
           const std::vector<Device>& devices) {
  auto names = parse_names(config.parallel.split);
  try {
    if (names.empty())
      names = measured_split(model, empty_batch(layout, batch_sizes(config.train, 1).micro), devices.size());
    if (names.size() + 1 != devices.size())
      throw make_error(Errc::usage, "{} modules are named, and {} devices given", names.size(), devices.size());
    split_model(model, names, devices);
    if (devices[0].type == DeviceType::cpu) model.place_results(Device{});  // the place of the targets
  } catch (const Error& e) {
    const auto& p = config.parallel;
    throw make_error(e.code(), "parallel.devices = {}{}: {}", p.devices,
                     p.split.empty() ? "" : ", parallel.split = " + p.split, e.what());
  }
}

}  // namespace

Tensor empty_batch(const data::SampleLayout& layout, std::int64_t samples) {
  std::vector<std::int64_t> shape = layout.input_shape;
  shape.insert(shape.begin(), samples);
  return Tensor::zeros(Shape(shape), layout.input_dtype);
}

void place_model(const TrainConfig& config, nn::Module& model, const data::SampleLayout& layout, Device device) {
  const auto devices = devices_of(config.parallel);
  const bool is_split = config.parallel.strategy == "ddp" && !devices.empty();
  if (is_split && config.parallel.micro_batches > 0) return;
  if (is_split && (devices.size() > 1 || (devices[0].type == DeviceType::cpu && devices[0] != Device{})))
    return split(config, model, layout, devices);
  if (device.type == DeviceType::cuda) model.place(device);
}

std::unique_ptr<DataParallel> make_data_parallel(const TrainConfig& config, nn::Module& model,
                                                 const data::SampleLayout& layout, const tasks::Task& task) {
  if (config.parallel.strategy != "data_parallel") return nullptr;
  const auto replica = [&] {
    auto copy = make_model(config.model, layout, task.outputs(), config.train.seed);
    copy->set_recompute(recompute_of(config.train));
    if (config.train.quantization_aware) nn::make_quantization_aware(*copy);
    return copy;
  };
  return std::make_unique<DataParallel>(model, replica, devices_of(config.parallel));
}

}  // namespace ddprun::trainer
