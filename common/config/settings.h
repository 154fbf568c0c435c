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

// Where a value came from; a later one in this list beats an earlier one.
enum class Origin { fallback, cluster, file, environment, command_line };

struct SettingSource {
  Origin origin = Origin::fallback;
  std::string where = "default";  // "train.cfg:12", "PET_NNODES", "--train.epochs"
};

// What a setting accepts besides its type. Bounds are inclusive and for numbers, choices for texts.
struct SettingSpec {
  std::string help;  // one sentence, no full stop
  std::string unit;  // "s", "samples", "MiB"; empty where there is none
  std::optional<double> min;
  std::optional<double> max;
  std::vector<std::string> choices;
  std::vector<std::string> suggested;          // texts worth offering where others are valid too
  std::map<std::string, std::string> refused;  // texts that others would take, and why they are none here
};

// One setting, type-erased: what the command line, files, environment, reference page and --print-config share.
struct Setting {
  std::string key;   // "train.epochs"
  std::string type;  // "int", "float", "text", "path", "flag"
  SettingSpec spec;
  std::string fallback;  // the default, as text
  SettingSource source;
  std::function<void(std::string_view)> parse;  // throws Errc::usage; the message completes "train.epochs = x: ..."
  std::function<std::string()> print;
};

// The settings of one program, each bound to a member of its options struct (whose value at add() is the default).
// The struct must outlive this object and not move. Not thread-safe.
class Settings {
 public:
  void add(std::string key, std::int64_t& target, SettingSpec spec);
  void add(std::string key, int& target, SettingSpec spec);
  void add(std::string key, double& target, SettingSpec spec);
  void add(std::string key, bool& target, SettingSpec spec);
  void add(std::string key, std::string& target, SettingSpec spec);
  void add(std::string key, std::filesystem::path& target, SettingSpec spec);

  // Sets key from text unless a stronger origin already has. Throws Errc::usage, one line: where, key, value, what
  // would be right; for an unknown key the nearest known one.
  void assign(std::string_view key, std::string_view text, const SettingSource& source);

  bool knows(std::string_view key) const { return find(key) != nullptr; }
  const Setting* find(std::string_view key) const;
  const std::vector<Setting>& all() const { return settings_; }

  // "[section]" blocks of "key = value  # source", in the order of add(). Reads back as a configuration file.
  std::string effective() const;
  // The reference page: one Markdown table a section.
  std::string reference() const;

 private:
  void add(Setting setting);
  std::vector<Setting> settings_;
};

// The candidate that a mistyped word probably stands for: the shortest one that begins with it, else the nearest by
// edit distance if that is at most half the word's length.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddprun
