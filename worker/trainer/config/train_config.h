#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/settings.h"
#include "common/dtype.h"
#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/data/augmentation.h"
#include "worker/data/loader.h"
#include "worker/nn/models.h"
#include "worker/optim/grad_scaler.h"
#include "worker/optim/lr_schedule.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/plateau_options.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data/local_sgd/local_sgd.h"
#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"
#include "worker/parallel/forms/parameter_server/parameter_server.h"
#include "worker/plugin/registry.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/tasks/tasks.h"
#include "worker/trainer/config/axis_ranks.h"

namespace ddprun::trainer {

// All settings of a training job, with their defaults; those of a part are its own options. keys_*.cc have the key,
// unit, bounds and help of each member, from which configs/reference.md is made, checks*.cc the rules of validate(),
// and needs.cc the members that have an effect only together with others.
struct TrainConfig {
  // The sizes are those of hidden_sizes; input and outputs follow from the data.
  struct Model : nn::ModelOptions {
    std::string name = "cnn";
    std::filesystem::path plugin;
    std::filesystem::path weights;
    std::string weights_prefix;
    std::string weights_except;
    std::string freeze;
    std::string hidden_sizes = "128 128";
  } model;
  struct Data {
    std::string name = "mnist";
    std::filesystem::path dir;
    bool shuffle = true;
    bool drop_last = false;
    data::LoaderOptions loader;
    bool normalize = true;
    std::int64_t image_size = 224;
    data::AugmentationOptions augmentation;
    double mixup = 0;
    std::int64_t samples = 10000;
    std::int64_t test_samples = 2000;
    std::int64_t seed = 0;
    std::string shape = "16";
    std::int64_t context = 128;
    std::int64_t vocabulary = 50304;
    std::filesystem::path tokenizer;
    std::int64_t outputs = 1;
    bool labels = false;
    double noise = 0.1;
    std::filesystem::path ledger;
  } data;
  struct Train {
    std::string task = "auto";
    std::int64_t epochs = 1;
    std::int64_t batch_size = 64;
    std::int64_t global_batch_size = 0;
    std::int64_t max_steps = 0;
    std::int64_t seed = 0;
    std::int64_t accumulate = 1;
    std::int64_t shards = 0;
    std::string device = "cpu";
    std::string precision = "fp32";
    bool tf32 = false;
    std::string recompute = "none";
    bool winograd = true;
    bool quantization_aware = false;
    double ema = 0;
    bool memory_report = false;
    optim::GradScalerOptions scaler;
    std::int64_t log_every = 100;
    std::int64_t check_replicas = 200;
    bool stop_on_nonfinite = true;
    bool detect_anomaly = false;
    bool check_placements = false;
    std::string preempt_signal = "USR1";
  } train;
  struct Eval {
    std::int64_t batch_size = 100;
    std::int64_t every_epochs = 1;
    std::int64_t every_steps = 0;
  } eval;
  struct Optim : optim::OptimOptions {
    std::string name = "adam";
    bool decay_one_dimensional = true;
    double clip_norm = 0;
    double clip_value = 0;
    double skip_outliers = 0;
    optim::LrScheduleOptions lr_schedule;  // without rate, length and milestones
    std::string schedule_unit = "steps";
    std::int64_t schedule_length = 0;
    std::string milestones;
    optim::PlateauOptions plateau;
  } optim;
  struct Dist {
    std::string backend = "auto";
    double timeout = 300;
    double freeze_bound = 1;
    std::int64_t staging_kb = 1024;
    double bucket_mb = 25;
  } dist;
  struct Parallel {
    DdpOptions ddp;  // without what names parameters
    std::string ignored_parameters;
    std::string delay_all_reduce_named_params;
    std::string param_to_hook_all_reduce;
    bool sync_batch_norm = false;
    std::string hook = "allreduce";
    HookOptions hook_options;
    std::string strategy = "ddp";
    LocalSgdOptions local_sgd;
    ParameterServerOptions server;
    std::int64_t round = 100;
    std::string devices;
    std::string split;
    bool balance = false;
    std::int64_t zero = 0;
    ShardedOptions sharded;
    AxisRanks ranks;  // of model_axes()
    int micro_batches = 0;
    std::string schedule = "1f1b";
    int virtual_stages = 1;
    bool sequence = false;
  } parallel;
  struct Recovery {
    std::string mode = "in_process";
    double wait = 60;
    bool standby = true;
    std::filesystem::path file;
  } recovery;
  struct Checkpoint {
    std::filesystem::path dir;
    std::int64_t every_steps = 0;
    int keep = checkpoint::CheckpointOptions().keep;
    bool keep_best = false;
    bool background = true;
    double timeout = 600;
    int peers = 0;
    std::int64_t heal_memory = 1024;
    std::string resume = "auto";
  } checkpoint;
  struct Metrics {
    std::filesystem::path file;
    std::filesystem::path tensorboard;
  } metrics;
  struct Distill {
    std::string teacher;
    std::filesystem::path weights;
    std::string hidden = "128 128";
    std::int64_t channels = nn::ModelOptions().channels;
    tasks::DistillationOptions options;
  } distill;
  struct Tokenize {
    std::int64_t vocabulary = 1024;
  } tokenize;
  struct Generate {
    std::string prompt;
    std::int64_t tokens = 200;
    double temperature = 0.8;
    std::int64_t top_k = 0;
    std::int64_t seed = 0;
    std::filesystem::path quantized;
  } generate;
  struct Predict {
    std::filesystem::path input;
    std::filesystem::path output;
    std::filesystem::path quantized;
  } predict;
  struct Profile {
    std::int64_t steps = 0;
    std::int64_t warmup = 5;
    std::filesystem::path trace;
  } profile;
  struct Quantize {
    std::string mode = "auto";
    std::filesystem::path file;
    std::int64_t samples = 1000;
  } quantize;
};

// Binds every member to its key, and the plugin's keys; its names are choices like the built-in ones. config and
// registry must outlive the settings and not move. Throws Errc::usage for a name or a key of the plugin that exists
// already.
void bind(Settings& settings, TrainConfig& config, const plugin::Registry& registry = {});

// Decides between train.batch_size and train.global_batch_size by their sources: the one from the stronger source sets
// the other to 0. Call it once all sources are applied, before validate().
void settle_batch_size(Settings& settings, const TrainConfig& config);

// Sets train.device = cuda if it is not given and parallel.devices has CUDA devices. Call it when settle_batch_size()
// is called.
void settle_device(Settings& settings, const TrainConfig& config);

// Refuses settings that were given and have no effect, such as the momentum of an optimizer without one. Throws
// Errc::usage for a setting that comes from the same source as what makes it idle, or from a stronger one. Another, of
// a file that an override changes, gets its default and a line in the result. A value that is the default and means
// "not used" (0, false, an empty text) asks for nothing and is passed over. command: "train" or one of ddprun-worker's;
// a key of another command may be in a file, which serves all commands, not on the command line. Call it after
// settle_batch_size(), before validate(). needs.cc has the table.
std::vector<std::string> settle_needs(Settings& settings, const TrainConfig& config,
                                      std::string_view command = "train");
// Returns whether a setting has an effect only with some values of others, or in some commands: whether that table
// names it.
bool needs_others(std::string_view key);

// Checks what the bounds of a single setting cannot express. Throws Errc::usage naming the key, its value and where it
// was given.
void validate(const TrainConfig& config, const Settings& settings);

// Returns the settings as a configuration file that means the same; those without an effect are comments.
std::string effective_config(const TrainConfig& config, const Settings& settings);

// Returns the number of parts into which a step is divided: its ranks, or with train.shards the shards.
int parts_of_step(const TrainConfig::Train& train, int world_size);

struct BatchSizes {
  std::int64_t step = 1;   // samples of an optimizer step, of all ranks together
  std::int64_t micro = 1;  // the most samples of a rank's micro-batch
};
BatchSizes batch_sizes(const TrainConfig::Train& train, int world_size);

// Returns the names in a text such as "a, b" or "a b".
std::vector<std::string> parse_names(const std::string& text);

// Returns the type that train.precision means: the lower type of autocast, or float32 without autocast.
DType compute_dtype(const TrainConfig::Train& train);

// Returns those of Scope::run, on which the bits of a run's result depend: not its length, output files or messages.
std::map<std::string, std::string> settings_that_decide(const Settings& settings);

// Returns all keys as a Markdown page: configs/reference.md.
std::string reference_page();

// The largest sample or layer, batch, and data set in memory that settings may ask for.
inline constexpr std::int64_t max_tensor_elements = std::int64_t{1} << 28;  // 1 GiB of float32
inline constexpr std::int64_t max_batch_elements = std::int64_t{1} << 30;
inline constexpr std::int64_t max_shards = 4096;
inline constexpr std::int64_t max_dataset_bytes = std::int64_t{1} << 34;

// Returns the numbers in "1x28x28", "128 64" or "128,64", or none. Throws Errc::usage that completes "key = value: ".
std::vector<std::int64_t> parse_extents(const std::string& text);

}  // namespace ddprun::trainer
