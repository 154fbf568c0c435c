#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "common/error.h"
#include "rendezvous/store/protocol.h"

// Checks of arguments before a request is sent: the server answers an invalid request by closing the connection.
namespace ddprun::rendezvous {

inline void require_key_fits(std::size_t bytes, std::string_view key) {
  if (bytes > max_key_bytes)
    throw make_error(Errc::usage, "a store key of {} bytes (at most {}): '{}...'", bytes, max_key_bytes,
                     key.substr(0, 32));
}
inline void require_key(std::string_view key) {
  require_key_fits(key.size(), key);
}
inline void require_value(std::string_view value, std::string_view key) {
  if (value.size() > max_value_bytes)
    throw make_error(Errc::usage, "a store value of {} bytes (at most {}) for key '{}'", value.size(), max_value_bytes,
                     key);
}

// Views of the arguments, after checking them. Pairs are (key, value).
inline std::vector<std::string_view> checked_views(const std::vector<std::string>& keys) {
  for (const auto& key : keys) require_key(key);
  return {keys.begin(), keys.end()};
}
inline std::vector<KeyValueView> checked_views(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<KeyValueView> views;
  views.reserve(pairs.size());
  for (const auto& [key, value] : pairs) {
    require_key(key);
    require_value(value, key);
    views.push_back({key, value});
  }
  return views;
}

// "file store /tmp/s: get 'key' timed out after 2.000 s"
[[noreturn]] inline void throw_wait_timeout(std::string_view store, std::string_view verb, std::string_view key,
                                            Deadline::Clock::time_point start) {
  const std::chrono::duration<double> elapsed = Deadline::Clock::now() - start;
  throw make_error(Errc::timeout, "{}: {} '{}' timed out after {:.3f} s", store, verb, key, elapsed.count());
}

// Splits items into batches that each fit one request, and calls action(std::span<const Item>) for each. bytes_of(item)
// is the item's size without its length fields.
template <class Items, class BytesOf, class Action>
void for_each_batch(const Items& items, BytesOf bytes_of, Action action) {
  constexpr std::size_t overhead = 16;
  const std::span all(items);
  std::size_t begin = 0, bytes = overhead;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto size = bytes_of(all[i]) + overhead;
    if (i > begin && (i - begin == max_keys || bytes + size > max_request_bytes)) {
      action(all.subspan(begin, i - begin));
      begin = i;
      bytes = overhead;
    }
    bytes += size;
  }
  if (begin < all.size()) action(all.subspan(begin));
}

}  // namespace ddprun::rendezvous
