#include "launcher/hosts/ssh_command.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/error.h"
#include "common/shell_quoted.h"

namespace ddprun {
namespace {

// Entries are whole names, or prefixes of names, which end in '*'.
constexpr std::string_view passed_on[] = {
    "PATH",  "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX", "LOGLEVEL",
    "TERM",  "CUDA_*",          "DDPRUN_*",   "FI_*",        "GLOO_*",      "HF_*",         "KMP_*",
    "MKL_*", "NCCL_*",          "OMP_*",      "OPENBLAS_*",  "PET_*",       "TORCH*",       "UCX_*",
};

// These variables concern only the starting ddprun.
constexpr std::string_view not_passed_on[] = {"PET_HOSTS", "PET_HOSTFILE", "PET_SSH", "PET_ENV",
                                              "TORCHELASTIC_ERROR_FILE"};

bool is_passed_on(std::string_view name) {
  if (std::find(std::begin(not_passed_on), std::end(not_passed_on), name) != std::end(not_passed_on)) return false;
  return std::any_of(std::begin(passed_on), std::end(passed_on), [&](std::string_view pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  });
}

// Splits as a shell does: at white space, except within quotes of either kind.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? '\0' : c;
      if (!inside) words.emplace_back();
      inside = true;
    } else if (quote == 0 && (c == ' ' || c == '\t')) {
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      inside = true;
      words.back() += c;
    }
  }
  if (quote != 0) throw make_error(Errc::usage, "--ssh = {}: a quote is not closed", text);
  if (words.empty()) throw make_error(Errc::usage, "--ssh: expected a program, as in 'ssh -p 2222'");
  return words;
}

}  // namespace

std::vector<std::string> ssh_command(std::string_view ssh, const HostEntry& host, const std::string& program,
                                     const std::string& argument) {
  auto words = split_words(ssh);
  if (std::filesystem::path(words.front()).filename() == "ssh")
    for (const auto* word : {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                             "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"})
      words.emplace_back(word);
  words.push_back(host.name);
  // The user's shell on the host may be any one; it only has to understand single quotes.
  words.push_back("exec /bin/sh -c " +
                  shell_quoted("if [ -x \"$0\" ]; then exec \"$0\" \"$@\"; else exec ddprun \"$@\"; fi") + " " +
                  shell_quoted(program) + " " + argument);
  return words;
}

std::vector<std::string> environment_for_hosts(const Environment& environment, std::string_view named) {
  std::map<std::string, std::string> chosen;
  for (const auto& [name, value] : environment.values())
    if (is_passed_on(name)) chosen[name] = value;
  for (auto rest = named; !rest.empty();) {
    const auto comma = rest.find(',');
    const auto item = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    const auto equals = item.find('=');
    const std::string name(item.substr(0, equals));
    const auto value = equals == std::string_view::npos ? environment.get(name) : std::string(item.substr(equals + 1));
    if (name.empty())
      throw make_error(Errc::usage, "--env = {}: expected NAME or NAME=VALUE, separated by commas", named);
    if (!value) throw make_error(Errc::usage, "--env: {} is not set here; --env {}=VALUE gives it a value", name, name);
    chosen[name] = *value;
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : chosen) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace ddprun
