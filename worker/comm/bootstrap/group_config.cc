#include "worker/comm/bootstrap/group_config.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

// One field: its published form, and the form in which an error message shows it.
struct Field {
  std::string_view key;
  std::string value, text;
};

std::vector<Field> fields_of(const GroupConfig& config) {
  const auto number = [](std::string_view key, auto value, std::string text) {
    return Field{key, fmt::format("{}", value), std::move(text)};
  };
  const auto ms = [](milliseconds time) { return fmt::format("{} ms", time.count()); };
  const auto& shared = config.shared;
  const bool checked = compares_calls(shared);
  const auto heartbeat = heartbeat_of(shared);
  return {{"backend", config.backend, "back end " + config.backend},
          number("size", config.size, fmt::format("size {}", config.size)),
          number("checked", checked ? 1 : 0, checked ? "checked calls" : "unchecked calls"),
          number("freeze_bound", shared.freeze_bound.count(), "freeze_bound " + ms(shared.freeze_bound)),
          number("heartbeat", heartbeat.count(),
                 "heartbeat " + ms(heartbeat) + " (derived from timeout and freeze_bound unless set)"),
          number("staging_bytes", shared.staging_bytes, fmt::format("staging_bytes {}", shared.staging_bytes))};
}

// Returns "backend=gloo size=4 ...". A back end's name has no space.
std::string encode(const GroupConfig& config) {
  std::string line;
  for (const auto& field : fields_of(config))
    line += fmt::format("{}{}={}", line.empty() ? "" : " ", field.key, field.value);
  return line;
}

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_field(std::string_view key, std::string_view value, GroupConfig& config) {
  auto& shared = config.shared;
  const auto read_ms = [&](auto& time) {
    milliseconds::rep count = 0;
    const bool good = read_number(value, count);
    time = milliseconds(count);
    return good;
  };
  if (key == "backend") {
    config.backend = value;
    return true;
  }
  if (key == "checked") {
    shared.checked = value == "1";
    return value == "0" || value == "1";
  }
  if (key == "size") return read_number(value, config.size);
  if (key == "freeze_bound") return read_ms(shared.freeze_bound);
  if (key == "heartbeat") return read_ms(shared.heartbeat);
  if (key == "staging_bytes") return read_number(value, shared.staging_bytes);
  return false;
}

// Returns none for a text with other fields, or in another order: it is another version's.
std::optional<GroupConfig> decode_config(std::string_view line) {
  GroupConfig config;
  for (auto rest = line; !rest.empty();) {
    const auto word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    if (!read_field(word.substr(0, equals), word.substr(equals + 1), config)) return std::nullopt;
  }
  if (encode(config) != line) return std::nullopt;
  return config;
}

}  // namespace

GroupConfig group_config(std::string_view backend, const GroupOptions& options) {
  return {.backend = std::string(backend),
          .size = options.size,
          .shared = {.freeze_bound = options.config.freeze_bound,
                     .heartbeat = heartbeat_of(options.config),
                     .checked = compares_calls(options.config),
                     .staging_bytes = options.config.staging_bytes}};
}

std::string encode(const ConfigClaim& claim) {
  return claim.who + '\n' + (claim.config ? encode(*claim.config) : "");
}

ConfigClaim decode_claim(std::string_view text) {
  const auto end = std::min(text.find('\n'), text.size());
  return {std::string(text.substr(0, end)), decode_config(text.substr(std::min(end + 1, text.size())))};
}

std::optional<std::string> describe_mismatch(const ConfigClaim& one, const ConfigClaim& other) {
  for (const auto* claim : {&one, &other}) {
    if (!claim->config)
      return fmt::format("the configuration of {} cannot be read: it may run another version of ddprun", claim->who);
  }
  const auto left = fields_of(*one.config), right = fields_of(*other.config);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].value != right[i].value)
      return fmt::format("{} asks for {}, {} for {}", one.who, left[i].text, other.who, right[i].text);
  }
  return std::nullopt;
}

}  // namespace ddprun::comm
