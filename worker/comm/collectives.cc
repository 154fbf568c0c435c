#include "worker/comm/collectives.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace ddprun {

namespace {

// The length of a text and its beginning: one operation suffices for a short text.
template <std::size_t text_bytes>
struct Head {
  std::uint64_t length = 0;
  std::array<char, text_bytes> text{};

  Head() = default;
  explicit Head(std::string_view whole) : length(whole.size()) {
    std::ranges::copy(whole.substr(0, text_bytes), text.begin());
  }
  bool is_all() const { return length <= text_bytes; }
  std::string beginning() const { return {text.data(), std::min<std::size_t>(length, text_bytes)}; }
};
using GatheredHead = Head<248>;  // there is one of each rank
using BroadcastHead = Head<4088>;

template <std::size_t text_bytes>
Span bytes_of(Head<text_bytes>& head) {
  return {&head, sizeof head, DType::uint8};
}

}  // namespace

std::vector<std::string> all_gather_bytes(ProcessGroup& group, const std::string& own,
                                          std::optional<std::chrono::milliseconds> timeout) {
  const auto size = static_cast<std::size_t>(group.size());
  GatheredHead head(own);
  std::vector<GatheredHead> heads(size);
  group.allgather(bytes_of(head), {heads.data(), size * sizeof(GatheredHead), DType::uint8},
                  {.timeout = timeout, .blocking = true});
  std::vector<std::string> result;
  if (std::ranges::all_of(heads, &GatheredHead::is_all)) {
    for (const auto& each : heads) result.push_back(each.beginning());
    return result;
  }

  Counts counts;
  for (const auto& each : heads) counts.push_back(each.length);
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  group.allgatherv({own.data(), own.size(), DType::uint8}, {all.data(), all.size(), DType::uint8}, counts,
                   {.timeout = timeout, .blocking = true});
  std::size_t at = 0;
  for (const auto count : counts) {
    result.push_back(all.substr(at, count));
    at += count;
  }
  return result;
}

std::string broadcast_bytes(ProcessGroup& group, std::string own, int source) {
  BroadcastHead head(own);
  group.broadcast(bytes_of(head), source, {.blocking = true});
  if (head.is_all()) return head.beginning();
  own.resize(head.length);
  group.broadcast({own.data(), own.size(), DType::uint8}, source, {.blocking = true});
  return own;
}

}  // namespace ddprun
