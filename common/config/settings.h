#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// The source of a value. A later one in this list has precedence over an earlier one.
enum class Origin { fallback, cluster, file, environment, command_line };

struct SettingSource {
  Origin origin = Origin::fallback;
  std::string where = "default";  // "train.cfg:12", "PET_NNODES", "--train.epochs"
};

// The processes among which a setting's value has to be the same.
enum class Scope {
  run,      // the bits of a run's result depend on it: the same at all ranks, and whenever the run is resumed
  group,    // concerns how the ranks of a process group work together: the same at all of them, and free at a resume
  process,  // each rank may have its own: paths, messages, what a rank does beside the others
};

// A setting's help text and the values that it accepts. Bounds are inclusive; they apply to numbers, choices to texts.
struct SettingSpec {
  std::string help;  // one sentence without a full stop
  std::string unit;  // "s", "samples", "MiB"; may be empty
  std::optional<double> min;
  std::optional<double> max;
  std::vector<std::string> choices;
  std::vector<std::string> suggested;          // texts to offer as completions; others are valid too
  std::map<std::string, std::string> refused;  // texts that torchrun accepts and ddprun does not, with the reason
  std::map<std::string, std::string> words;    // texts that mean another one: {"true", "1"}
  Scope scope = Scope::run;                    // for a program with ranks
};

// One setting, type-erased, for the command line, files, environment, reference page and --print-config.
struct Setting {
  std::string key;   // "train.epochs"
  std::string type;  // "int", "float", "text", "path", "flag"
  SettingSpec spec;
  std::string fallback;  // the default, as text
  SettingSource source;
  std::function<void(std::string_view)> parse;  // throws Errc::usage; the message completes "train.epochs = x: ..."
  std::function<std::string()> print;
};

// The settings of one program, each bound to a member of its options struct, whose value at add() is the default.
// Ownership: the struct must outlive this object and must not move.
// Threads: not thread-safe. Errors: see assign().
class Settings {
 public:
  void add(std::string key, std::int64_t& target, SettingSpec spec);
  void add(std::string key, int& target, SettingSpec spec);
  void add(std::string key, double& target, SettingSpec spec);
  void add(std::string key, bool& target, SettingSpec spec);
  void add(std::string key, std::string& target, SettingSpec spec);
  void add(std::string key, std::filesystem::path& target, SettingSpec spec);

  // Sets key from text, unless an origin with precedence has set it. Throws Errc::usage in one line: where, key, value
  // and what is valid; for an unknown key the most similar known one.
  void assign(std::string_view key, std::string_view text, const SettingSource& source);

  bool knows(std::string_view key) const { return find(key) != nullptr; }
  const Setting* find(std::string_view key) const;
  const std::vector<Setting>& all() const { return settings_; }

  // "[section]" blocks of "key = value  # source" in the order of add(); a valid configuration file. Settings for which
  // has_effect returns false are comments in it; if has_effect is null, none are.
  std::string effective(const std::function<bool(const Setting&)>& has_effect = nullptr) const;
  // The reference page: one Markdown table per section.
  std::string reference() const;

 private:
  void add(Setting setting);
  std::vector<Setting> settings_;
};

// The candidate that a mistyped word probably means: the only one that begins with it, else the nearest by edit
// distance if that is at most half the word's length.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddprun
