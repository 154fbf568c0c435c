#include "worker/trainer/state/trained_model.h"

#include <filesystem>
#include <utility>

#include "common/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/nn/state.h"
#include "worker/parallel/stored/load.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/state/fine_tuning.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {
namespace {

// Loads a checkpoint; one of another model is a mistake in the train.cfg.
void load(nn::Module& model, const stored::ModelSource& trained) {
  try {
    nn::load_state(model, *trained.tensors, trained.name);
  } catch (const Error& e) {
    throw make_error(e.code() == Errc::mismatch ? Errc::usage : e.code(), "{}", e.what());
  }
}

}  // namespace

stored::ModelSource open_trained_model(std::string_view command, const TrainConfig& config) {
  const auto& weights = config.model.weights;
  if (config.checkpoint.dir.empty() && !weights.empty())
    return {weights.string(), std::make_unique<checkpoint::SafetensorsFile>(weights)};
  if (config.checkpoint.dir.empty())
    throw make_error(Errc::usage,
                     "{} needs checkpoint.dir, the folder with the model's checkpoints, or model.weights, a file",
                     command);
  std::error_code error;
  if (!std::filesystem::is_directory(config.checkpoint.dir, error))
    throw make_error(Errc::usage, "checkpoint.dir = {}: there is no such folder", config.checkpoint.dir.string());
  checkpoint::Checkpoints checkpoints({.folder = config.checkpoint.dir, .keep = config.checkpoint.keep});
  const bool best = resume_from_name(config.checkpoint.resume) == Resume::best;
  const auto found = best ? checkpoints.best({}, stored::check_files) : checkpoints.newest({}, stored::check_files);
  if (!found)
    throw make_error(Errc::usage, "{} holds no checkpoint{}", config.checkpoint.dir.string(),
                     best ? " in a folder best" : "");
  return stored::open_model(*found);
}

std::unique_ptr<nn::Module> load_trained_model(std::string_view command, const TrainConfig& config,
                                               const data::SampleLayout& layout, const tasks::Task& task,
                                               const plugin::Registry& registry) {
  TrainConfig on_host = config;
  if (names_cuda_devices(config.parallel)) on_host.parallel.devices.clear();
  const auto trained = open_trained_model(command, config);
  TrainState state = make_train_state(on_host, {}, layout, task, 0, registry);
  if (config.checkpoint.dir.empty())
    load_initial_weights(config.model, *state.model);
  else
    load(*state.model, trained);
  state.model->train(false);
  return std::move(state.model);
}

}  // namespace ddprun::trainer
