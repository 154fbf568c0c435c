#include "worker/trainer/session/shared_items.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/printable.h"
#include "worker/comm/collectives.h"
#include "worker/digest/sha256.h"

namespace ddprun::trainer {
namespace {

// Appends "LENGTH:TEXT": values may hold any character.
void append(std::string& out, std::string_view text) {
  out += fmt::format("{}:{}", text.size(), text);
}

std::string take(std::string_view& from) {
  std::size_t size = 0;
  const auto [end, status] = std::from_chars(from.data(), from.data() + from.size(), size);
  const auto digits = static_cast<std::size_t>(end - from.data());
  if (status != std::errc() || digits >= from.size() || *end != ':' || size > from.size() - digits - 1)
    throw make_error(Errc::protocol, "another rank's settings cannot be read: it may run another version of ddprun");
  std::string text(from.substr(digits + 1, size));
  from.remove_prefix(digits + 1 + size);
  return text;
}

bool has(const SharedItems& items, const std::string& name) {
  return std::ranges::any_of(items, [&](const auto& item) { return item.name == name; });
}

// Returns the ranks whose digest is not rank 0's.
std::vector<int> ranks_that_differ(const std::vector<std::uint8_t>& digests, std::size_t size) {
  std::vector<int> ranks;
  const auto first = digests.begin();
  for (auto at = first; at != digests.end(); at += static_cast<std::ptrdiff_t>(size))
    if (!std::equal(first, first + static_cast<std::ptrdiff_t>(size), at))
      ranks.push_back(static_cast<int>((at - first) / static_cast<std::ptrdiff_t>(size)));
  return ranks;
}

std::string shown(const std::optional<std::string>& value) {
  if (!value) return "nothing of this name";
  return value->empty() ? "none" : printable(*value);
}

}  // namespace

std::optional<Difference> first_difference(const SharedItems& one, const SharedItems& other) {
  const auto [left, right] = std::ranges::mismatch(one, other);
  if (left == one.end() && right == other.end()) return std::nullopt;
  if (left != one.end() && right != other.end() && left->name == right->name)
    return Difference{left->name, left->value, right->value};
  if (left != one.end() && !has(other, left->name)) return Difference{left->name, left->value, std::nullopt};
  if (right != other.end() && !has(one, right->name)) return Difference{right->name, std::nullopt, right->value};
  // Both ranks have both items, in another order.
  return Difference{"the order of what is compared", left->name, right->name};
}

std::string encode(const HostItems& items) {
  std::string out;
  append(out, items.host);
  for (const auto& item : items.items) {
    append(out, item.name);
    append(out, item.value);
  }
  return out;
}

HostItems decode_host_items(std::string_view text) {
  HostItems items{.host = take(text), .items = {}};
  while (!text.empty()) {
    auto name = take(text);
    items.items.push_back({std::move(name), take(text)});
  }
  return items;
}

void require_same_items(const SharedItems& own, ProcessGroup& group) {
  if (group.size() == 1) return;
  Sha256 hash;
  hash.update(encode({.host = "", .items = own}));
  const auto hex = hash.hex();
  const std::vector<std::uint8_t> digest(hex.begin(), hex.end());
  std::vector<std::uint8_t> all(digest.size() * static_cast<std::size_t>(group.size()));
  group.allgather(span_of(digest), span_of(all), {.blocking = true});
  const auto differing = ranks_that_differ(all, digest.size());
  if (differing.empty()) return;

  const int other = differing.front();
  const bool is_shown = group.rank() == 0 || group.rank() == other;
  const auto texts = all_gather_bytes(group, is_shown ? encode({.host = local_host_name(), .items = own}) : "");
  const auto one_side = decode_host_items(texts[0]), other_side = decode_host_items(texts[other]);
  const auto difference = first_difference(one_side.items, other_side.items);
  if (!difference) throw make_error(Errc::internal, "rank {}'s settings differ from rank 0's by digest alone", other);
  const auto more =
      differing.size() == 1 ? "" : fmt::format("; {} of {} ranks differ from rank 0", differing.size(), group.size());
  throw make_error(Errc::usage, "the ranks differ in {}: rank 0 on host {} has {}, rank {} on host {} has {}{}",
                   printable(difference->name), printable(one_side.host), shown(difference->one), other,
                   printable(other_side.host), shown(difference->other), more);
}

}  // namespace ddprun::trainer
