#include "common/config/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/printable.h"

namespace ddprun {
namespace {

// A lower bound that means "positive".
bool excludes_zero_only(const SettingSpec& spec) {
  return spec.min && *spec.min > 0 && *spec.min <= 1e-6;
}

std::string bounds_text(const SettingSpec& spec) {
  if (excludes_zero_only(spec)) return spec.max ? fmt::format("above 0, at most {}", *spec.max) : "above 0";
  if (spec.min && spec.max) return fmt::format("from {} to {}", *spec.min, *spec.max);
  if (spec.min) return fmt::format("at least {}", *spec.min);
  if (spec.max) return fmt::format("at most {}", *spec.max);
  return "";
}

template <class T>
T parse_number(std::string_view text, const SettingSpec& spec, const char* kind) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto as_double = static_cast<double>(value);
  const bool parsed = status == std::errc{} && end == text.data() + text.size() && std::isfinite(as_double);
  if (!parsed || (spec.min && as_double < *spec.min) || (spec.max && as_double > *spec.max)) {
    if constexpr (std::is_integral_v<T>)
      if (status == std::errc::result_out_of_range && !spec.max && !text.starts_with('-'))
        throw make_error(Errc::usage, "expected {} {}{}", kind,
                         spec.min ? fmt::format("from {} to ", *spec.min) : "at most ", std::numeric_limits<T>::max());
    if (excludes_zero_only(spec) && !spec.max) throw Error(Errc::usage, "expected a positive number");
    const auto bounds = bounds_text(spec);
    throw make_error(Errc::usage, "expected {}{}{}", kind, bounds.empty() ? "" : " ", bounds);
  }
  return value;
}

bool parse_flag(std::string_view text) {
  static constexpr std::string_view yes[] = {"true", "1", "yes", "on"};
  static constexpr std::string_view no[] = {"false", "0", "no", "off"};
  if (std::find(std::begin(yes), std::end(yes), text) != std::end(yes)) return true;
  if (std::find(std::begin(no), std::end(no), text) != std::end(no)) return false;
  throw make_error(Errc::usage, "expected true or false");
}

void check_choice(std::string_view text, const SettingSpec& spec) {
  if (const auto why = spec.refused.find(std::string(text)); why != spec.refused.end())
    throw Error(Errc::usage, why->second);
  if (spec.choices.empty() || std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end()) return;
  throw make_error(Errc::usage, "expected one of {}", fmt::join(spec.choices, ", "));
}

std::string quoted_if_needed(const std::string& value) {
  const bool plain = !value.empty() && value.find_first_of(" \t#\"") == std::string::npos;
  return plain ? value : "\"" + value + "\"";
}

std::string section_of(std::string_view key) {
  return std::string(key.substr(0, key.find('.')));
}

// In a section that exists, only the rest of the key is compared: the section's name would make any two of its keys
// look alike.
std::optional<std::string> nearest_key(std::string_view key, const std::vector<Setting>& settings) {
  const auto prefix = section_of(key) + ".";
  std::vector<std::string> all, names;
  for (const auto& setting : settings) {
    all.push_back(setting.key);
    if (setting.key.starts_with(prefix)) names.push_back(setting.key.substr(prefix.size()));
  }
  if (names.empty() || !key.starts_with(prefix)) return nearest(key, all);
  const auto name = nearest(key.substr(prefix.size()), names);
  return name ? std::optional(prefix + *name) : std::nullopt;
}

template <class T>
Setting number_setting(std::string key, T& target, SettingSpec spec, const char* type, const char* kind) {
  Setting setting;
  setting.key = std::move(key);
  setting.type = type;
  setting.spec = std::move(spec);
  setting.parse = [&target, s = setting.spec, kind](std::string_view text) { target = parse_number<T>(text, s, kind); };
  setting.print = [&target] { return fmt::format("{}", target); };
  return setting;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substitution}));
    }
  }
  return row.back();
}

}  // namespace

void Settings::add(Setting setting) {
  if (knows(setting.key)) throw make_error(Errc::internal, "setting {} is defined twice", setting.key);
  setting.fallback = setting.print();
  settings_.push_back(std::move(setting));
}

void Settings::add(std::string key, std::int64_t& target, SettingSpec spec) {
  add(number_setting(std::move(key), target, std::move(spec), "int", "a whole number"));
}
void Settings::add(std::string key, int& target, SettingSpec spec) {
  add(number_setting(std::move(key), target, std::move(spec), "int", "a whole number"));
}
void Settings::add(std::string key, double& target, SettingSpec spec) {
  add(number_setting(std::move(key), target, std::move(spec), "float", "a number"));
}
void Settings::add(std::string key, bool& target, SettingSpec spec) {
  add(Setting{.key = std::move(key),
              .type = "flag",
              .spec = std::move(spec),
              .parse = [&target](std::string_view text) { target = parse_flag(text); },
              .print = [&target] { return std::string(target ? "true" : "false"); }});
}
void Settings::add(std::string key, std::string& target, SettingSpec spec) {
  const SettingSpec copy = spec;
  add(Setting{.key = std::move(key),
              .type = "text",
              .spec = std::move(spec),
              .parse =
                  [&target, copy](std::string_view text) {
                    check_choice(text, copy);
                    target = text;
                  },
              .print = [&target] { return target; }});
}
void Settings::add(std::string key, std::filesystem::path& target, SettingSpec spec) {
  add(Setting{.key = std::move(key),
              .type = "path",
              .spec = std::move(spec),
              .parse = [&target](std::string_view text) { target = text; },
              .print = [&target] { return target.string(); }});
}

const Setting* Settings::find(std::string_view key) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.key == key; });
  return found == settings_.end() ? nullptr : &*found;
}

void Settings::assign(std::string_view key, std::string_view text, const SettingSource& source) {
  const auto setting = std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.key == key; });
  if (setting == settings_.end()) {
    const auto near = nearest_key(key, settings_);
    throw make_error(Errc::usage, "{}: unknown key {}{}", source.where, printable(key),
                     near ? fmt::format("; did you mean {}?", *near) : "");
  }
  if (source.origin < setting->source.origin) return;
  try {
    const auto word = setting->spec.words.find(std::string(text));
    setting->parse(word == setting->spec.words.end() ? text : word->second);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "{}: {} = {}: {}", source.where, key, printable(text), e.what());
  }
  setting->source = source;
}

std::string Settings::effective(const std::function<bool(const Setting&)>& has_effect) const {
  std::string out;
  std::string section;
  for (const auto& s : settings_) {
    if (const auto own = section_of(s.key); own != section) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", own);
      section = own;
    }
    const auto left = fmt::format("{} = {}", s.key.substr(section.size() + 1), quoted_if_needed(s.print()));
    if (!has_effect || has_effect(s))
      out += fmt::format("{:<40} # {}\n", left, s.source.where);
    else
      out += fmt::format("# {:<38} # {}, no effect\n", left, s.source.where);
  }
  return out;
}

std::string Settings::reference() const {
  std::string out;
  std::string section;
  for (const auto& s : settings_) {
    if (const auto own = section_of(s.key); own != section) {
      out += fmt::format("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n", own);
      section = own;
    }
    std::string meaning = s.spec.help;
    if (!s.spec.unit.empty()) meaning += fmt::format(" ({})", s.spec.unit);
    if (const auto bounds = bounds_text(s.spec); !bounds.empty()) meaning += fmt::format("; {}", bounds);
    if (!s.spec.choices.empty()) meaning += fmt::format("; one of `{}`", fmt::join(s.spec.choices, "`, `"));
    if (s.spec.scope == Scope::process) meaning += "; each rank may have its own";
    out += fmt::format("| `{}` | {} | {} | {} |\n", s.key.substr(section.size() + 1), s.type,
                       s.fallback.empty() ? "none" : "`" + s.fallback + "`", meaning);
  }
  return out;
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // An abbreviation, "nproc" of "nproc_per_node", if it matches exactly one candidate.
  const auto extends_word = [&](const std::string& candidate) { return candidate.starts_with(word); };
  const auto first = std::find_if(candidates.begin(), candidates.end(), extends_word);
  if (!word.empty() && std::count_if(candidates.begin(), candidates.end(), extends_word) == 1) return *first;
  const std::string* best = nullptr;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (!best || best_distance > std::max<std::size_t>(2, word.size() / 2)) return std::nullopt;
  return *best;
}

}  // namespace ddprun
