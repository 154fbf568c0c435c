#include "worker/trainer/commands/command.h"

namespace ddprun::trainer {
namespace {

constexpr CommandMaker* listed_commands[] = {
    train_command,     //
    generate_command,  //
    predict_command,   //
    evaluate_command,  //
    profile_command,   //
    quantize_command,  //
    tokenize_command,  //
    plan_command,      //
    ledger_command,    //
    export_command,    //
};

}  // namespace

std::vector<Command> all_commands() {
  std::vector<Command> commands;
  for (auto* make : listed_commands) commands.push_back(make());
  return commands;
}

std::string usage_lines() {
  std::string text;
  for (const auto& command : all_commands())
    text.append(text.empty() ? "usage: " : "       ").append("ddprun-worker ").append(command.usage).append("\n");
  return text;
}

std::string help_lines() {
  std::string text;
  for (const auto& command : all_commands()) text += command.help;
  return text;
}

}  // namespace ddprun::trainer
