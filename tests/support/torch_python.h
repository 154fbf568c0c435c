#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/environment.h"

// Python interpreters that have PyTorch.
namespace ddprun::testing {

struct TorchPython {
  std::string path;
  std::pair<int, int> version;  // version of torch
  std::string version_text;
};

// The version of the torch that this interpreter would import, found without importing it, which takes seconds.
inline std::optional<TorchPython> torch_of(const std::string& python) {
  constexpr const char* program =
      "import importlib.util as u, os, sys; s = u.find_spec('torch'); v = {}; "
      "exec(open(os.path.join(os.path.dirname(s.origin), 'version.py')).read(), v); "
      "print(sys.executable, v['__version__'])";
  std::FILE* pipe = ::popen(fmt::format("{} -c \"{}\" 2>/dev/null", python, program).c_str(), "r");
  char path[1024] = "", text[128] = "";
  const int words = pipe ? std::fscanf(pipe, "%1023s %127s", path, text) : 0;
  TorchPython found{.path = path, .version = {}, .version_text = text};
  if (pipe && ::pclose(pipe) != 0) return std::nullopt;
  if (words != 2 || std::sscanf(text, "%d.%d", &found.version.first, &found.version.second) != 2) return std::nullopt;
  return found;
}

// DDPRUN_TORCH_PYTHON names the interpreter; else python3 of PATH, then the distribution's.
inline std::vector<std::string> torch_candidates() {
  const auto named = Environment::capture().get("DDPRUN_TORCH_PYTHON");
  if (named && !named->empty()) return {*named, "/usr/bin/python3"};
  return {"python3", "/usr/bin/python3"};
}

// Returns the first one whose torch is at least `from` and below `below`.
inline std::optional<TorchPython> find_torch(std::pair<int, int> from, std::pair<int, int> below = {9999, 0}) {
  for (const auto& python : torch_candidates())
    if (auto found = torch_of(python); found && found->version >= from && found->version < below) return found;
  return std::nullopt;
}

constexpr std::pair<int, int> agent_store_torch{2, 2};  // the first that can use an agent's current store

inline std::optional<TorchPython> find_old_torch() {
  return find_torch({1, 9}, agent_store_torch);
}
inline std::optional<TorchPython> find_current_torch() {
  return find_torch(agent_store_torch);
}
constexpr const char* no_old_torch = "no python3 here has a torch before 2.2 (Debian 12: python3-torch)";
constexpr const char* no_current_torch =
    "neither DDPRUN_TORCH_PYTHON nor python3 has torch 2.2 or newer (pip install torch numpy)";

}  // namespace ddprun::testing
