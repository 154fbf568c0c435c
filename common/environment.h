#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A copy of a process environment. A value; only capture() reads the real environment.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> values) : values_(std::move(values)) {}

  static Environment capture();

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  void unset(std::string_view name);
  // "NAME=value" for execve(2), sorted by name.
  std::vector<std::string> entries() const;
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace ddprun
