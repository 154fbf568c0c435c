#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A copy of a process's environment, sorted by name.
//
// A value. Threads: not thread-safe; capture() reads the real environment and must not run beside setenv(3). Errors:
// none.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> values) : values_(std::move(values)) {}

  // The environment of this process. An entry without '=' is left out.
  static Environment capture();

  // Returns nullopt if the variable is not set; an empty value is a value.
  std::optional<std::string> get(std::string_view name) const;
  // Replaces an earlier value.
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  void unset(std::string_view name);
  // "NAME=value" for execve(2), sorted by name.
  std::vector<std::string> entries() const;
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace ddprun
