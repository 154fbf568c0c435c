#include "worker/comm/collectives.h"

#include <numeric>

namespace ddprun {

std::vector<std::string> all_gather_bytes(ProcessGroup& group, const std::string& own,
                                          std::optional<std::chrono::milliseconds> timeout) {
  const auto size = static_cast<std::size_t>(group.size());
  const std::vector<std::int64_t> length = {static_cast<std::int64_t>(own.size())};
  std::vector<std::int64_t> lengths(size);
  group.allgather(span_of(length), span_of(lengths), {.timeout = timeout, .blocking = true});

  const Counts counts(lengths.begin(), lengths.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  group.allgatherv({own.data(), own.size(), DType::uint8}, {all.data(), all.size(), DType::uint8}, counts,
                   {.timeout = timeout, .blocking = true});
  std::vector<std::string> result;
  std::size_t at = 0;
  for (const auto count : counts) {
    result.push_back(all.substr(at, count));
    at += count;
  }
  return result;
}

std::string broadcast_bytes(ProcessGroup& group, std::string own, int source) {
  std::vector<std::int64_t> size{std::ssize(own)};
  group.broadcast(span_of(size), source, {.blocking = true});
  own.resize(static_cast<std::size_t>(size[0]));
  if (!own.empty()) group.broadcast({own.data(), own.size(), DType::uint8}, source, {.blocking = true});
  return own;
}

}  // namespace ddprun
