#include "worker/trainer/commands/rank_start.h"

#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "common/memory_exhausted.h"
#include "common/rank_label.h"
#include "worker/comm/init.h"
#include "worker/recovery/recovery.h"
#include "worker/tensor/onednn/product_code.h"
#include "worker/trainer/commands/preparation.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/config/recovery_settings.h"
#include "worker/trainer/session/job_items.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

// Sets the label for the launcher's report of this rank's failure.
void report_label(const TrainConfig& config, const WorkerEnv& place, Device device) {
  const auto label = device.type == DeviceType::cuda ? device_names(config, device) : mesh_label(config, place);
  if (label.empty() || place.error_file.empty()) return;
  try {
    write_rank_label(place.error_file, label);
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
}

// Reads what the ranks are to have in common; nothing where there are never others. Runs beside the forming of the
// group, which mostly waits for the others.
std::future<SharedItems> read_items(const char* command, const CommandContext& context, const Datasets& datasets,
                                    bool has_others) {
  if (!has_others) return std::async(std::launch::deferred, [] { return SharedItems(); });
  if (auto* const prepared = context.prepared)
    return std::async(std::launch::deferred, [prepared] { return std::move(prepared->items); });
  return std::async(std::launch::async, [=, &context, &datasets] {
    return items_of_job(command, context.config, context.settings, datasets, context.registry);
  });
}

// Returns a text such as "cuda:0, NVIDIA H100 80GB HBM3", for all devices of this rank.
std::string device_description(const TrainConfig& config, Device device) {
  if (!names_cuda_devices(config.parallel)) return describe_cuda_device(device);
  std::string text;
  for (const Device each : devices_of(config.parallel)) text += (text.empty() ? "" : "; ") + describe_cuda_device(each);
  return text;
}

// A rank's place in the job: a group for all of the run, or groups one after the other.
struct Membership {
  std::unique_ptr<World> world;  // one of the two
  std::unique_ptr<Recovery> recovery;
  ProcessGroup* group = nullptr;  // null: it joins later
};

// A difference between the ranks' settings of the group itself is a mistake like any other difference of settings.
Membership join_job(const CommandContext& context, const WorkerEnv& place, Device device, bool recovers) try {
  const TrainConfig& config = context.config;
  auto options = init_options(config, place, device);
  if (context.prepared) options.previous_group = context.prepared->own_group;
  Membership job;
  if (recovers) {
    std::optional<RecoveryState::Layout> layout;
    if (has_sharded_state(config)) layout = {.fits = [&config](int ranks) { return fits_mesh(config, ranks); }};
    job.recovery = std::make_unique<Recovery>(options, recovery_bound(config), std::move(layout));
    if (!job.recovery->is_replacement()) job.group = &job.recovery->form_first();
  } else {
    job.world = init_process_group(options);
    job.group = &job.world->group();
  }
  return job;
} catch (const Error& e) {
  if (e.code() == Errc::mismatch) throw Error(Errc::usage, e.what());
  throw;
}

// A file of data that is damaged is a mistake like one that is missing: a restart would end the same way.
Datasets read_datasets(const CommandContext& context) try {
  return context.prepared ? std::move(context.prepared->datasets)
                          : make_datasets(context.config, context.settings, context.registry);
} catch (const MemoryExhausted&) {
  throw;
} catch (const Error& e) {
  if (e.code() == Errc::io) throw Error(Errc::usage, e.what());
  throw;
}

enum class Output { file, folder };

void require_writable(std::string_view key, const std::filesystem::path& path, Output kind) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  std::error_code status;
  const auto folder = kind == Output::folder ? path : path.parent_path();
  if (!folder.empty()) fs::create_directories(folder, status);
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  if (kind == Output::file && fs::is_directory(path, ignored)) status = std::make_error_code(std::errc::is_a_directory);
  const auto target = exists ? path : folder.empty() ? "." : folder;
  if (!status && ::access(target.c_str(), W_OK) != 0) status = {errno, std::generic_category()};
  if (status) throw make_error(Errc::usage, "{} = {}: it cannot be written: {}", key, path.string(), status.message());
}

// Rank 0 writes these files. That it cannot is found out before it joins the others, which then have nothing to report.
void require_writable_outputs(const TrainConfig& config) {
  require_writable("checkpoint.dir", config.checkpoint.dir, Output::folder);
  require_writable("metrics.file", config.metrics.file, Output::file);
  require_writable("metrics.tensorboard", config.metrics.tensorboard, Output::folder);
}

}  // namespace

void check_output(const Progress& progress) {
  if (progress.error() != 0)
    throw make_error(Errc::io, "cannot write to standard output: {}", errno_text(progress.error()));
}

int run_as_rank(const CommandContext& context, const char* command,
                const std::function<int(const StartedRank& rank)>& body) {
  const TrainConfig& config = context.config;
  const plugin::Registry& registry = context.registry;
  // Constructed before anything starts a thread. Without a folder for a checkpoint no request could be granted.
  const PreemptionListener preemption(config.checkpoint.dir.empty() ? "none" : config.train.preempt_signal);
  const auto place = ask_mpi(context.place, group_timeout(config));
  const Device device = train_device(config, place);
  const auto products = generate_product_code();
  Progress progress(stdout, config.train.log_every, place.rank == 0);
  const auto datasets = read_datasets(context);
  const bool trains = std::string_view(command) == "train";
  if (trains && place.rank == 0) require_writable_outputs(config);
  const bool recovers = trains && place.recovery && recovers_in_process(config) && device.type == DeviceType::cpu;
  const bool joins_later = recovers && *place.recovery > 0;
  if (!datasets.note.empty() && !joins_later) progress.line(datasets.note);
  apply_tf32(config, device);
  report_label(config, place, device);
  auto items = read_items(command, context, datasets, place.world_size > 1 || recovers);
  if (device.type == DeviceType::cuda) progress.line("rank 0 trains on " + device_description(config, device));
  const auto job = join_job(context, place, device, recovers);
  const SharedItems shared = items.get();
  return body({.place = place,
               .datasets = datasets,
               .context = {.group = job.group,
                           .progress = progress,
                           .generation = place.restart_count,
                           .preemption = &preemption,
                           .plugin = &registry,
                           .shared = &shared,
                           .device = device,
                           .prepared_state = context.prepared ? &context.prepared->state : nullptr,
                           .training_record = place.training_record,
                           .recovery = job.recovery.get(),
                           .first_of_host = place.local_rank == 0}});
}

}  // namespace ddprun::trainer
