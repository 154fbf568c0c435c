// ddprun-worker: one rank of a training job described by a train.cfg.
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include <boost/version.hpp>
#include <fmt/core.h>

#include "ddprun/common/config/config_file.h"
#include "ddprun/common/environment.h"
#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/log.h"
#include "ddprun/common/process_limits.h"
#include "ddprun/common/rank_label.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/common/version.h"
#include "ddprun/worker/comm/backends/gloo/gloo_version.h"
#include "ddprun/worker/comm/error_file.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/digest/sha256.h"
#include "ddprun/worker/plugin/load.h"
#include "ddprun/worker/tensor/device_fault.h"
#include "ddprun/worker/tensor/onednn/onednn_version.h"
#include "ddprun/worker/tensor/onednn/product_code.h"
#include "ddprun/worker/trainer/commands/generation.h"
#include "ddprun/worker/trainer/commands/layout_plan.h"
#include "ddprun/worker/trainer/commands/prediction.h"
#include "ddprun/worker/trainer/commands/profile_job.h"
#include "ddprun/worker/trainer/commands/quantisation.h"
#include "ddprun/worker/trainer/commands/step_plan.h"
#include "ddprun/worker/trainer/commands/tokenize.h"
#include "ddprun/worker/trainer/config/device_settings.h"
#include "ddprun/worker/trainer/config/group_settings.h"
#include "ddprun/worker/trainer/report/device_fault.h"
#include "ddprun/worker/trainer/session/job_items.h"
#include "ddprun/worker/trainer/state/train_device.h"
#include "ddprun/worker/trainer/trainer.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

constexpr const char* usage_text =
    "usage: ddprun-worker train.cfg [--section.key=value ...]\n"
    "       ddprun-worker generate train.cfg [--section.key=value ...]\n"
    "       ddprun-worker predict train.cfg [--section.key=value ...]\n"
    "       ddprun-worker profile train.cfg [--section.key=value ...]\n"
    "       ddprun-worker quantize train.cfg [--section.key=value ...]\n"
    "       ddprun-worker tokenize train.cfg [--section.key=value ...]\n"
    "       ddprun-worker plan train.cfg [--ranks N | --world_size N] [--section.key=value ...]\n"
    "       ddprun-worker [train.cfg] [--section.key=value ...] --print-config | --reference | --help | --version\n"
    "\n"
    "Runs the training job that train.cfg describes, as a single process or as one rank of several. The environment "
    "decides:\n"
    "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as ddprun and torchrun set them, or the variables of mpirun and "
    "srun.\n"
    "\n"
    "generate continues a text with the model of the newest checkpoint; its keys are those of [generate].\n"
    "predict writes what that model predicts for the samples of a file, or the test set, as CSV: [predict].\n"
    "profile trains some steps, as a single process or as one rank of several, and says where their time went: "
    "[profile].\n"
    "quantize writes that model with weights of 8 bits, and prints what it loses and gains: [quantize].\n"
    "tokenize learns a byte-pair encoding from the text of data.name = text, for data.tokenizer: [tokenize].\n"
    "plan prints what a step takes with N ranks (1): memory, bytes sent and time, after some steps of a dry run here;\n"
    "with --world_size that of every layout of N ranks (data x tensor x pipeline, ZeRO), the fastest first.\n"
    "\n"
    "  --section.key=value   override a value of train.cfg\n"
    "  --print-config        print the effective configuration and the source of each value\n"
    "  --reference           print all keys as a Markdown page\n";

// The command line, split into its kinds of arguments.
struct Arguments {
  std::string config_file;
  std::vector<ConfigEntry> overrides;
  std::string command = "train";  // or one of commands
  std::optional<int> ranks;       // of plan
  std::optional<int> world_size;  // of plan: every layout of so many ranks
  bool print_config = false;
  bool reference = false;
  bool help = false;
  bool version = false;
};

constexpr std::array<std::string_view, 6> commands{"generate", "predict", "profile", "plan", "quantize", "tokenize"};

// "--ranks N" or "--ranks=N", say, which is taken away.
std::optional<int> take_ranks(const std::string& option, std::vector<std::string>& arguments) {
  const auto found = std::ranges::find_if(
      arguments, [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
  if (found == arguments.end()) return std::nullopt;
  const bool is_inline = *found != option;
  const auto end = found + (is_inline || found + 1 == arguments.end() ? 1 : 2);
  const std::string value = is_inline ? found->substr(found->find('=') + 1) : found + 1 == end ? "" : *(found + 1);
  int ranks = 0;
  const auto [stop, status] = std::from_chars(value.data(), value.data() + value.size(), ranks);
  if (status != std::errc{} || stop != value.data() + value.size() || ranks < 1 || ranks > 100'000)
    throw make_error(Errc::usage, "{} = '{}': expected a whole number from 1 to 100000", option, value);
  arguments.erase(found, end);
  return ranks;
}

Arguments parse_arguments(std::vector<std::string> arguments) {
  Arguments parsed;
  const auto take_flag = [&](const char* name) { return std::erase(arguments, name) > 0; };
  parsed.print_config = take_flag("--print-config");
  parsed.reference = take_flag("--reference");
  parsed.help = take_flag("--help");
  parsed.version = take_flag("--version");
  if (!arguments.empty() && std::ranges::count(commands, arguments.front()) > 0) {
    parsed.command = arguments.front();
    arguments.erase(arguments.begin());
  }
  if (parsed.command == "plan") {
    parsed.ranks = take_ranks("--ranks", arguments);
    parsed.world_size = take_ranks("--world_size", arguments);
    if (parsed.ranks && parsed.world_size)
      throw Error(Errc::usage, "plan: --ranks plans the layout of the train.cfg, --world_size every layout: give one");
  }
  if (!arguments.empty() && !arguments.front().starts_with("-")) {
    parsed.config_file = arguments.front();
    arguments.erase(arguments.begin());
  }
  parsed.overrides = parse_overrides(arguments);
  if (parsed.config_file.empty() && !parsed.print_config && !parsed.reference && !parsed.help && !parsed.version)
    throw make_error(Errc::usage, "no train.cfg was given; see ddprun-worker --help");
  return parsed;
}

std::vector<ConfigEntry> entries_of_file(const Arguments& arguments) {
  if (arguments.config_file.empty() || arguments.help || arguments.reference || arguments.version) return {};
  return read_config(arguments.config_file);
}

// Before the settings are bound: it decides which names and keys there are.
plugin::Registry load_plugin(const std::vector<ConfigEntry>& file, const std::vector<ConfigEntry>& overrides) {
  ConfigEntry named;
  for (const auto* entries : {&file, &overrides})
    for (const auto& entry : *entries)
      if (entry.key == "model.plugin") named = entry;
  if (named.value.empty()) return {};
  try {
    return plugin::load(named.value);
  } catch (const Error& e) {
    throw make_error(e.code(), "{}: model.plugin = {}", named.where, e.what());
  }
}

void read_settings(Settings& settings, const TrainConfig& config, const Arguments& arguments,
                   const std::vector<ConfigEntry>& file, const WorkerEnv& place) {
  apply(settings, file, Origin::file, {"launch"});
  apply(settings, arguments.overrides, Origin::command_line);
  settle_batch_size(settings, config);
  settle_device(settings, config);
  const auto notices = settle_needs(settings, config, arguments.command);
  validate(config, settings);
  if (place.rank == 0)
    for (const auto& notice : notices) log::warn("{}", notice);
}

std::vector<LibraryVersion> libraries() {
  return {{"Boost", version_of_number(BOOST_VERSION, 100, 100'000)},
          {"Gloo", comm::gloo_version()},
          {"oneDNN", onednn_version()},
          {"OpenSSL", openssl_version()}};
}

// A file that is opened later would get the number of a closed standard descriptor, and lines meant for the terminal
// would be written into it. With /dev/null in its place, opened for the other direction, such a write fails.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void check_output(const Progress& progress) {
  if (progress.error() != 0)
    throw make_error(Errc::io, "cannot write to standard output: {}", errno_text(progress.error()));
}

// For the launcher's report of this rank's failure.
void tell_label(const TrainConfig& config, const WorkerEnv& place, Device device) {
  const auto label = device.type == DeviceType::cuda ? device_names(config, device) : mesh_label(config, place);
  if (label.empty() || place.error_file.empty()) return;
  try {
    write_rank_label(place.error_file, label);
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
}

// What the ranks are to have in common; nothing without other ranks. Beside the forming of the group, which mostly
// waits for the others.
std::future<SharedItems> read_items(const char* command, const TrainConfig& config, const Settings& settings,
                                    const Datasets& datasets, const plugin::Registry& registry, int ranks) {
  if (ranks == 1) return std::async(std::launch::deferred, [] { return SharedItems(); });
  return std::async(std::launch::async, [=, &config, &settings, &datasets, &registry] {
    return items_of_job(command, config, settings, datasets, registry);
  });
}

// What the ranks' settings of the group itself differ in is a mistake like any other difference of their settings.
std::unique_ptr<World> join(const InitOptions& options) {
  try {
    return init_process_group(options);
  } catch (const Error& e) {
    if (e.code() == Errc::mismatch) throw Error(Errc::usage, e.what());
    throw;
  }
}

// "cuda:0, NVIDIA H100 80GB HBM3", of all devices of this rank.
std::string device_description(const TrainConfig& config, Device device) {
  if (!names_cuda_devices(config.parallel)) return describe_cuda_device(device);
  std::string text;
  for (const Device each : devices_of(config.parallel)) text += (text.empty() ? "" : "; ") + describe_cuda_device(each);
  return text;
}

// Returns the exit code. training: set when the start-up has succeeded.
int train_in_group(const TrainConfig& config, const Settings& settings, const Datasets& datasets,
                   const Trainer::Context& context, const WorkerEnv& place, bool& training) {
  std::optional<Trainer> trainer;
  Summary summary;
  try {
    trainer.emplace(config, settings_that_decide(settings), datasets, context);
    training = true;
    summary = trainer->run();
  } catch (const Error& error) {
    // The process group may have noticed first that the device has failed, and knows less of it.
    const bool of_device = dynamic_cast<const DeviceError*>(&error) || dynamic_cast<const OutOfDeviceMemory*>(&error);
    const auto fault = of_device ? std::nullopt : device_fault(context.device);
    const Error& cause = fault ? static_cast<const Error&>(*fault) : error;
    // The others learn the reason, and nothing waits for them when the trainer ends.
    if (is_device_fault(cause, context.device)) context.group.abort(cause.what());
    throw fault_of_rank(cause, config, place, context.device);
  }
  context.progress.line(summary_line(summary));
  if (summary.preempted) return exit_preempted;  // also when the line is lost: the checkpoint is complete
  check_output(context.progress);
  check_learnt(summary);
  return exit_success;
}

// Trains or profiles; otherwise as train_in_group().
int train(const TrainConfig& config, const Settings& settings, const plugin::Registry& registry, const WorkerEnv& known,
          bool only_profile, bool& training) {
  // Before anything starts a thread. Without a folder for a checkpoint there is nothing to do about a request.
  const PreemptionListener preemption(config.checkpoint.dir.empty() ? "none" : config.train.preempt_signal);
  const auto place = ask_mpi(known, group_timeout(config));
  if (only_profile && names_cuda_devices(config.parallel))
    throw make_error(Errc::usage, "parallel.devices = {}: profile measures one device so far", config.parallel.devices);
  const Device device = train_device(config, place);
  const auto products = generate_product_code();
  Progress progress(place.rank == 0 ? stdout : nullptr, config.train.log_every);
  const auto datasets = make_datasets(config, settings, registry);
  if (!datasets.note.empty()) progress.line(datasets.note);
  apply_tf32(config, device);
  tell_label(config, place, device);
  auto items = read_items(only_profile ? "profile" : "train", config, settings, datasets, registry, place.world_size);
  if (device.type == DeviceType::cuda) progress.line("rank 0 trains on " + device_description(config, device));
  const auto world = join(init_options(config, place, device));
  const SharedItems shared = items.get();
  const Trainer::Context context{world->group(), progress, place.restart_count, &preemption, &registry,
                                 &shared,        device};
  if (only_profile) {
    training = true;
    profile_job(config, settings_that_decide(settings), datasets, context);
    check_output(progress);
    return exit_success;
  }
  return train_in_group(config, settings, datasets, context, place, training);
}

// Several ranks share the processors as under the launcher. OpenMP reads its number of threads when the program starts.
void divide_threads(int ranks) {
  if (ranks == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const auto threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  std::ifstream file("/proc/self/cmdline");
  std::string words((std::istreambuf_iterator<char>(file)), {});
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < words.size(); at = words.find('\0', at) + 1) arguments.push_back(words.data() + at);
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  log::warn("plan: each rank computes with all processors: the program cannot be started again: {}", errno_text(errno));
}

void plan_job(const TrainConfig& config, const Settings& settings, const Arguments& arguments,
              const plugin::Registry& registry) {
  if (config.parallel.strategy == "parameter_server")
    throw Error(Errc::usage, "parallel.strategy = parameter_server: plan is of steps that all ranks make together");
  if (names_cuda_devices(config.parallel))
    throw make_error(Errc::usage, "parallel.devices = {}: plan measures the CPU so far", config.parallel.devices);
  const int ranks = arguments.world_size.value_or(arguments.ranks.value_or(1));
  divide_threads(ranks);
  arguments.world_size ? plan_layouts(config, settings, ranks, registry) : plan(config, settings, ranks, registry);
}

int run(const std::vector<std::string>& command_line, const WorkerEnv& place, bool& training) {
  const auto arguments = parse_arguments(command_line);
  const auto file = entries_of_file(arguments);
  const auto registry = load_plugin(file, arguments.overrides);
  TrainConfig config;
  Settings settings;
  bind(settings, config, registry);
  if (arguments.help || arguments.reference) {
    write_standard_output(arguments.help ? usage_text : reference_page());
  } else if (arguments.version) {
    write_standard_output(version_text("ddprun-worker", libraries()));
  } else {
    read_settings(settings, config, arguments, file, place);
    if (arguments.print_config)
      write_standard_output(effective_config(config, settings));
    else if (arguments.command == "generate")
      generate(config, registry);
    else if (arguments.command == "predict")
      predict(config, settings, registry);
    else if (arguments.command == "quantize")
      quantise(config, settings, registry);
    else if (arguments.command == "tokenize")
      tokenize(config);
    else if (arguments.command == "plan")
      plan_job(config, settings, arguments, registry);
    else
      return train(config, settings, registry, place, arguments.command == "profile", training);
  }
  return exit_success;
}

// Reports the failure in the error file and in the log. A usage error is not logged where a launcher prints it from the
// error file, since every worker finds the same one.
void report(const std::string& message, FailureKind kind, const WorkerEnv& place) {
  bool written = false;
  try {
    if (!place.error_file.empty()) {
      write_error_file(place.error_file, message, std::time(nullptr), kind);
      written = true;
    }
  } catch (const Error& e) {
    log::warn("the error file could not be written: {}", e.what());
  }
  // ddprun and torchrun set this variable, and both print the error file of the first failure.
  const bool launched = Environment::capture().get("TORCHELASTIC_RUN_ID").has_value();
  if (kind != FailureKind::usage_error || !written || !launched) log::error("{}", message);
}

FailureKind kind_of(Errc code, bool training) {
  if (code == Errc::usage && !training) return FailureKind::usage_error;
  return is_consequence(code) ? FailureKind::consequence : FailureKind::failure;
}

}  // namespace

int main(int argc, char** argv) {
  WorkerEnv place;
  bool training = false;
  occupy_standard_descriptors();
  try {
    log::init("ddprun-worker");
    place = WorkerEnv::from(Environment::capture());
    write_error_file_at_terminate(place.error_file);
    if (place.world_size != 1) log::init(fmt::format("ddprun-worker rank {}", place.rank));
    return run({argv + 1, argv + argc}, place, training);
  } catch (const Error& e) {
    report(e.what(), kind_of(e.code(), training), place);
    return exit_for(e.code());
  } catch (const std::exception& e) {
    report(exception_text(e), FailureKind::failure, place);
    return exit_fault;
  }
}
