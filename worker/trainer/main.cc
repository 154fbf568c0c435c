// ddprun-worker: one rank of a training job described by a train.cfg.
#include <algorithm>
#include <charconv>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <boost/version.hpp>
#include <fmt/core.h>

#include "common/config/config_file.h"
#include "common/environment.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/process_limits.h"
#include "common/standard_output.h"
#include "common/version.h"
#include "worker/comm/backends/gloo/gloo_version.h"
#include "worker/comm/error_file.h"
#include "worker/digest/sha256.h"
#include "worker/plugin/load.h"
#include "worker/tensor/onednn/onednn_version.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/commands/preparation.h"
#include "worker/trainer/config/recovery_settings.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/library_handlers.h"
#include "worker/trainer/recovery/standby.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

std::string help_text() {
  return usage_lines() +
         "       ddprun-worker [train.cfg] [--section.key=value ...] --print-config | --reference | --help | "
         "--version\n"
         "\n"
         "Runs the training job that train.cfg describes, as a single process or as one rank of several. The "
         "environment decides:\n"
         "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as ddprun and torchrun set them, or the variables of mpirun "
         "and srun.\n"
         "\n" +
         help_lines() +
         "\n"
         "  --section.key=value   override a value of train.cfg\n"
         "  --print-config        print the effective configuration and the source of each value\n"
         "  --reference           print all keys as a Markdown page\n";
}

// The command line, split into its kinds of arguments.
struct Arguments {
  std::string config_file;
  std::vector<ConfigEntry> overrides;
  Command command;
  std::map<std::string, int> counts;  // see CommandContext::counts
  std::vector<std::string> words;     // those of a command without a train.cfg
  bool print_config = false;
  bool reference = false;
  bool help = false;
  bool version = false;
};

// Removes the command's name, if there is one.
Command take_command(std::vector<std::string>& arguments) {
  const auto commands = all_commands();
  const auto named = std::ranges::find_if(commands.begin() + 1, commands.end(), [&](const Command& command) {
    return !arguments.empty() && command.name == arguments.front();
  });
  if (named == commands.end()) return commands.front();
  arguments.erase(arguments.begin());
  return *named;
}

// Removes an option such as "--ranks N" or "--ranks=N", and returns its number.
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

std::vector<std::string> known_keys() {
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  std::vector<std::string> keys;
  for (const auto& setting : settings.all()) keys.push_back(setting.key);
  return keys;
}

// The keys are listed where an error may name some of them alone.
std::vector<ConfigEntry> overrides_of(const std::vector<std::string>& arguments) try {
  return parse_overrides(arguments);
} catch (const Error&) {
  return parse_overrides(arguments, known_keys());
}

Arguments parse_arguments(std::vector<std::string> arguments) {
  Arguments parsed;
  const auto take_flag = [&](const char* name) { return std::erase(arguments, name) > 0; };
  parsed.print_config = take_flag("--print-config");
  parsed.reference = take_flag("--reference");
  parsed.help = take_flag("--help") || arguments == std::vector<std::string>{"help"};
  parsed.version = take_flag("--version");
  parsed.command = take_command(arguments);
  if (parsed.command.run_words) {
    parsed.words = std::move(arguments);
    return parsed;
  }
  for (const auto option : parsed.command.counts)
    if (const auto count = take_ranks(std::string(option), arguments)) parsed.counts.emplace(option, *count);
  if (!arguments.empty() && !arguments.front().starts_with("-")) {
    parsed.config_file = arguments.front();
    arguments.erase(arguments.begin());
  }
  parsed.overrides = overrides_of(arguments);
  if (parsed.config_file.empty() && !parsed.print_config && !parsed.reference && !parsed.help && !parsed.version)
    throw make_error(Errc::usage, "no train.cfg was given; see ddprun-worker --help");
  return parsed;
}

std::vector<ConfigEntry> entries_of_file(const Arguments& arguments) {
  if (arguments.config_file.empty() || arguments.help || arguments.reference || arguments.version) return {};
  return read_config(arguments.config_file);
}

// Called before the settings are bound: the plugin decides which names and keys there are.
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
  settle_recovery(settings, config);
  const auto notices = settle_needs(settings, config, arguments.command.name);
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

void take_place(WorkerEnv& place) {
  place = WorkerEnv::from(Environment::capture());
  write_error_file_at_terminate(place.error_file);
  if (place.world_size != 1) log::init(fmt::format("ddprun-worker rank {}", place.rank));
}

// standby: null if the place is known from the start.
int run(const std::vector<std::string>& command_line, Standby* standby, WorkerEnv& place) {
  const auto arguments = parse_arguments(command_line);
  const auto file = entries_of_file(arguments);
  const auto registry = load_plugin(file, arguments.overrides);
  TrainConfig config;
  Settings settings;
  bind(settings, config, registry);
  if (arguments.help || arguments.reference) {
    write_standard_output(arguments.help ? help_text() : reference_page());
  } else if (arguments.version) {
    write_standard_output(version_text("ddprun-worker", libraries()));
  } else if (arguments.command.run_words) {
    return arguments.command.run_words(arguments.words);
  } else {
    read_settings(settings, config, arguments, file, place);
    if (arguments.print_config) {
      write_standard_output(effective_config(config, settings));
      return exit_success;
    }
    auto prepared = standby ? prepare_run(config, settings, registry, standby->ranks()) : std::nullopt;
    if (standby) {
      if (!standby->wait()) return exit_success;
      take_place(place);
    }
    return arguments.command.run(
        {config, settings, registry, place, arguments.counts, prepared ? &*prepared : nullptr});
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

FailureKind kind_of(Errc code) {
  if (code == Errc::usage) return FailureKind::usage_error;
  return is_consequence(code) ? FailureKind::consequence : FailureKind::failure;
}

}  // namespace

int main(int argc, char** argv) {
  WorkerEnv place;
  occupy_standard_descriptors();
  trainer::remove_handlers_of_ucx();
  try {
    log::init("ddprun-worker");
    auto standby = Standby::from(Environment::capture());
    if (!standby) take_place(place);
    return run({argv + 1, argv + argc}, standby ? &*standby : nullptr, place);
  } catch (const Error& e) {
    report(e.what(), kind_of(e.code()), place);
    return exit_for(e.code());
  } catch (const std::exception& e) {
    report(exception_text(e), FailureKind::failure, place);
    return exit_fault;
  }
}
