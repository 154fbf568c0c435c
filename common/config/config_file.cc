#include "common/config/config_file.h"

#include <algorithm>
#include <map>

#include "common/bounded_file.h"
#include "common/error.h"
#include "common/printable.h"

namespace ddprun {
namespace {

constexpr std::size_t largest_file = std::size_t{16} << 20;

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Text has no control characters but tabs and ends of lines.
void check_text(std::string_view line, const std::string& where) {
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7f)
      throw make_error(Errc::usage, "{}: this is not a text file: the line contains the byte 0x{:02x}", where, byte);
  }
}

// The value of "key = value": without quotes or a trailing comment.
std::string parse_value(std::string_view text, const std::string& where) {
  text = trim(text);
  if (!text.empty() && text.front() == '"') {
    const auto close = text.find('"', 1);
    if (close == std::string_view::npos) throw make_error(Errc::usage, "{}: the quote is not closed", where);
    const auto rest = trim(text.substr(close + 1));
    if (!rest.empty() && rest.front() != '#')
      throw make_error(Errc::usage, "{}: unexpected '{}' after the quoted value", where, printable(rest));
    return std::string(text.substr(1, close - 1));
  }
  return std::string(trim(text.substr(0, text.find('#'))));
}

std::string parse_section(std::string_view line, const std::string& where) {
  const auto close = line.find(']');
  const auto name = close == std::string_view::npos ? std::string_view{} : trim(line.substr(1, close - 1));
  const auto rest = close == std::string_view::npos ? std::string_view{} : trim(line.substr(close + 1));
  if (name.empty() || (!rest.empty() && rest.front() != '#'))
    throw make_error(Errc::usage, "{}: expected [section], got '{}'", where, printable(line));
  return std::string(name);
}

// Returns a text such as "; did you mean --train.epochs?", from the keys that have this name in their section.
std::string keys_text(std::string_view name, const std::vector<std::string>& keys) {
  std::string text;
  for (const auto& key : keys)
    if (name.starts_with("--") && key.substr(key.find('.') + 1) == name.substr(2))
      text += (text.empty() ? "; did you mean --" : " or --") + key;
  return text.empty() ? text : text + "?";
}

}  // namespace

std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file_name) {
  std::vector<ConfigEntry> entries;
  std::map<std::string, std::string> seen;
  std::string section;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const auto line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;

    const auto where = fmt::format("{}:{}", file_name, number);
    check_text(line, where);
    if (line.front() == '[') {
      section = parse_section(line, where);
      continue;
    }
    const auto equals = line.find('=');
    const auto name = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || name.empty())
      throw make_error(Errc::usage, "{}: expected 'key = value' or '[section]', got '{}'", where, printable(line));
    if (section.empty()) throw make_error(Errc::usage, "{}: '{}' comes before any [section]", where, printable(name));
    auto key = fmt::format("{}.{}", section, name);
    const auto [first, inserted] = seen.emplace(key, where);
    if (!inserted) throw make_error(Errc::usage, "{}: {} was already given at {}", where, key, first->second);
    entries.push_back({std::move(key), parse_value(line.substr(equals + 1), where), where});
  }
  return entries;
}

std::vector<ConfigEntry> read_config(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_named_file(path, largest_file);
  } catch (const Error& e) {
    throw Error(Errc::usage, e.what());
  }
  return parse_config(text, path.string());
}

std::vector<ConfigEntry> parse_overrides(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& keys) {
  std::vector<ConfigEntry> entries;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto equals = argument.find('=');
    const auto name = argument.substr(0, equals);
    if (!name.starts_with("--") || name.find('.') == std::string::npos)
      throw make_error(Errc::usage, "'{}': expected --section.key=value{}", argument, keys_text(name, keys));
    const bool inline_value = equals != std::string::npos;
    if (!inline_value && i + 1 == arguments.size()) throw make_error(Errc::usage, "'{}' has no value", argument);
    entries.push_back({name.substr(2), inline_value ? argument.substr(equals + 1) : arguments[++i], name});
  }
  return entries;
}

void apply(Settings& settings, const std::vector<ConfigEntry>& entries, Origin origin,
           const std::vector<std::string>& ignored_sections) {
  for (const auto& entry : entries) {
    const auto section = entry.key.substr(0, entry.key.find('.'));
    if (std::find(ignored_sections.begin(), ignored_sections.end(), section) != ignored_sections.end()) continue;
    settings.assign(entry.key, entry.value, {origin, entry.where});
  }
}

}  // namespace ddprun
