#include "ddprun/worker/comm/bootstrap/group_config.h"

#include <algorithm>

#include <fmt/core.h>

namespace ddprun::comm {
namespace {

constexpr std::string_view separator = "; ";

std::string_view take_phrase(std::string_view& terms) {
  const auto phrase = terms.substr(0, terms.find(separator));
  terms.remove_prefix(std::min(phrase.size() + separator.size(), terms.size()));
  return phrase.empty() ? "nothing more" : phrase;
}

}  // namespace

// The freeze bound and the heartbeat are of one rank's watch over another.
std::string config_text(std::string_view backend, const GroupOptions& options) {
  return fmt::format(
      "back end {}; size {}; {} calls; freeze_bound {} ms; heartbeat {} ms (unless given, by timeout); staging_bytes "
      "{}",
      backend, options.size, compares_calls(options.config) ? "checked" : "unchecked",
      options.config.freeze_bound.count(), heartbeat_of(options.config).count(), options.config.staging_bytes);
}

std::string encode(const ConfigClaim& claim) {
  return claim.who + '\n' + claim.terms;
}

ConfigClaim decode_claim(std::string_view text) {
  const auto end = std::min(text.find('\n'), text.size());
  return {std::string(text.substr(0, end)), std::string(text.substr(std::min(end + 1, text.size())))};
}

std::optional<std::string> describe_mismatch(const ConfigClaim& one, const ConfigClaim& other) {
  std::string_view left = one.terms, right = other.terms;
  while (!left.empty() || !right.empty()) {
    const auto wanted = take_phrase(left), differs = take_phrase(right);
    if (wanted != differs) return fmt::format("{} asks for {}, {} for {}", one.who, wanted, other.who, differs);
  }
  return std::nullopt;
}

}  // namespace ddprun::comm
