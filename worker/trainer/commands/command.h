#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/settings.h"
#include "worker/comm/launch_env.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

struct PreparedRun;

// The arguments of a command. All of it outlives the call.
struct CommandContext {
  const TrainConfig& config;
  const Settings& settings;
  const plugin::Registry& registry;
  const WorkerEnv& place;
  const std::map<std::string, int>& counts;  // those of Command::counts that are given
  PreparedRun* prepared = nullptr;           // taken over by training; null: nothing is prepared
};

// A command of ddprun-worker.
struct Command {
  std::string_view name;   // also on the command line, except that training is written without a name
  std::string_view usage;  // the text after the program's name: "generate train.cfg [--section.key=value ...]"
  std::string_view help;   // lines for --help; may be empty
  // Returns the exit code. Throws Errc::usage for settings that it does not support, and what the parts throw.
  int (*run)(const CommandContext& context) = nullptr;
  std::vector<std::string_view> counts = {};  // options that take a number of ranks: "--ranks"
  // Replaces run, for a command that has no train.cfg: gets the words that follow its name.
  int (*run_words)(const std::vector<std::string>& words) = nullptr;
};

// All commands, training first, in the order of --help. The table in commands.cc has a row for each.
std::vector<Command> all_commands();

// These two return the usage and the help of all commands.
std::string usage_lines();
std::string help_lines();

// Each command is in a file of its own.
using CommandMaker = Command();
CommandMaker train_command, generate_command, predict_command, evaluate_command, profile_command, quantize_command,
    tokenize_command, plan_command, ledger_command, export_command;

}  // namespace ddprun::trainer
