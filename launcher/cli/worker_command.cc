#include "launcher/cli/worker_command.h"

#include <cerrno>
#include <optional>
#include <string_view>
#include <unistd.h>

#include <boost/process/v2/environment.hpp>

#include "common/error.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

bool is_executable_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> search_path(const std::string& name, const Environment& environment) {
  const std::vector<std::string> path{"PATH=" + environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin")};
  const auto found = boost::process::v2::environment::find_executable(name, path);
  return found.empty() ? std::nullopt : std::optional<fs::path>(found.native());
}

std::string why_not_executable(const std::string& name) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return "it is a folder";
  const int missing = ::access(name.c_str(), F_OK) != 0 ? errno : 0;
  if (name.find('/') != std::string::npos) return errno_text(missing != 0 ? missing : EACCES);
  if (missing != 0) return errno_text(ENOENT) + " (not on PATH either)";
  return fmt::format("it is not on PATH; did you mean ./{}?", name);
}

// A launcher that pip installed into a virtual environment uses that environment's Python.
std::string python_beside(const fs::path& own_folder) {
  const auto beside = own_folder / "python3";
  std::error_code ignored;
  const bool virtual_environment = fs::exists(own_folder.parent_path() / "pyvenv.cfg", ignored);
  return virtual_environment && is_executable_file(beside) ? beside.string() : "python3";
}

fs::path find_python(const std::string& script, const fs::path& own_folder, const Environment& environment,
                     bool for_preview) {
  const auto chosen = environment.get("PYTHON_EXEC");
  const std::string name = chosen && !chosen->empty() ? *chosen : python_beside(own_folder);
  try {
    return find_program(name, environment);
  } catch (const Error& e) {
    if (for_preview) return name;
    throw make_error(Errc::io, "{} needs a Python interpreter, and there is none: {}; name one in PYTHON_EXEC", script,
                     e.what());
  }
}

fs::path find_builtin_worker(const fs::path& own_folder, const Environment& environment) {
  auto beside = own_folder / "ddprun-worker";
  if (is_executable_file(beside)) return beside;
  if (const auto found = search_path("ddprun-worker", environment)) return *found;
  throw make_error(Errc::io, "the built-in worker ddprun-worker is neither in {} nor on PATH", own_folder.string());
}

bool ends_in(const std::string& text, std::string_view suffix) {
  return std::string_view(text).ends_with(suffix);
}

}  // namespace

fs::path find_program(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    if (is_executable_file(name)) return name;
  } else if (const auto found = search_path(name, environment)) {
    return *found;
  }
  throw make_error(Errc::usage, "cannot execute {}: {}", name, why_not_executable(name));
}

WorkerCommand resolve_command(const std::vector<std::string>& command, const CommandChoice& choice,
                              const fs::path& own_folder, const Environment& environment) {
  if (choice.no_python && choice.module)
    throw make_error(Errc::usage, "--module needs Python: it excludes --no_python");
  const std::string& script = command.at(0);
  WorkerCommand result{.title = script};
  if (choice.module || (!choice.no_python && ends_in(script, ".py"))) {
    // The script is checked first: where it is missing, the interpreter is not what the user has to fix.
    if (!choice.module && ::access(script.c_str(), R_OK) != 0)
      throw make_error(Errc::usage, "cannot read {}: {}", script, errno_text(errno));
    result.executable = find_python(script, own_folder, environment, choice.for_preview);
    result.arguments = {result.executable.string(), "-u"};
    if (choice.module) result.arguments.push_back("-m");
  } else if (!choice.no_python && ends_in(script, ".cfg")) {
    result.executable = find_builtin_worker(own_folder, environment);
    result.arguments = {result.executable.string()};
  } else {
    result.executable = find_program(script, environment);
  }
  result.arguments.insert(result.arguments.end(), command.begin(), command.end());
  return result;
}

std::vector<std::string> arguments_for(const WorkerCommand& command, int local_rank) {
  constexpr std::string_view placeholder = "${local_rank}";
  auto result = command.arguments;
  for (auto& argument : result)
    for (auto at = argument.find(placeholder); at != std::string::npos; at = argument.find(placeholder, at))
      argument.replace(at, placeholder.size(), std::to_string(local_rank));
  return result;
}

}  // namespace ddprun
