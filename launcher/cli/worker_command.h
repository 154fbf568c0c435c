#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"

namespace ddprun {

// What every worker executes: arguments[0] as the user wrote it, and the file it stands for.
struct WorkerCommand {
  std::filesystem::path executable;
  std::vector<std::string> arguments;
  std::string title;  // the script's name, for reports
};

struct CommandChoice {
  bool no_python = false;
  bool module = false;
};

// Which program runs the script: *.cfg the built-in worker (ddprun-worker, looked for beside own_folder's programs,
// then on PATH), *.py and -m the Python interpreter ($PYTHON_EXEC, else python3), anything else is a program itself.
// Throws Errc::usage for options that exclude each other, Errc::io when there is no such program or it cannot be
// executed.
WorkerCommand resolve_command(const std::vector<std::string>& command, const CommandChoice& choice,
                              const std::filesystem::path& own_folder, const Environment& environment);

// The program that a name stands for, as a shell finds it: one with a slash is a path, another is looked for on PATH.
// Throws Errc::io when there is none or it cannot be executed.
std::filesystem::path find_program(const std::string& name, const Environment& environment);

// The arguments of one worker: "${local_rank}" replaced, every other $ left as it is.
std::vector<std::string> arguments_for(const WorkerCommand& command, int local_rank);

}  // namespace ddprun
