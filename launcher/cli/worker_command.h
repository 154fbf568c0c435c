#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun {

// The command of a node's workers. arguments[0] is the program as the user wrote it, executable the file to execute.
struct WorkerCommand {
  std::filesystem::path executable;
  std::vector<std::string> arguments;
  std::string title;  // the script's name, for reports
};

struct CommandChoice {
  bool no_python = false;
  bool module = false;
  bool for_preview = false;  // a missing Python interpreter is no error: the command says python3
};

// Finds the program that runs the script: for *.cfg the built-in worker (ddprun-worker in own_folder, else on PATH),
// for *.py and -m the Python interpreter ($PYTHON_EXEC, else python3); anything else is itself the program. Throws
// Errc::usage for options that exclude each other and for a script or program that is missing or not executable,
// Errc::io if the worker or the interpreter is missing.
WorkerCommand resolve_command(const std::vector<std::string>& command, const CommandChoice& choice,
                              const std::filesystem::path& own_folder, const Environment& environment);

// Finds a program as a shell does: a name with a slash is a path, any other is searched for on PATH. Throws Errc::usage
// if it is missing or not executable.
std::filesystem::path find_program(const std::string& name, const Environment& environment);

// The arguments of one worker: "${local_rank}" is replaced, any other $ is kept.
std::vector<std::string> arguments_for(const WorkerCommand& command, int local_rank);

}  // namespace ddprun
