#include "ddprun/worker/comm/collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ddprun {
namespace {

// Above it a buffer travels alone, without a copy; packs are not much larger.
constexpr std::size_t pack_bytes = 1 << 20;

Span bytes_of(void* data, std::size_t count) {
  return {data, count, DType::uint8};
}

void broadcast_pack(ProcessGroup& group, const std::vector<Span>& pack, int root) {
  std::size_t total = 0;
  for (const auto& buffer : pack) total += buffer.bytes();
  std::vector<std::byte> packed(total);
  const auto for_each_slice = [&](auto action) {
    auto* at = packed.data();
    for (const auto& buffer : pack) {
      if (buffer.bytes() > 0) action(at, buffer);
      at += buffer.bytes();
    }
  };
  if (group.rank() == root) {
    for_each_slice([](std::byte* at, const Span& buffer) { std::memcpy(at, buffer.data, buffer.bytes()); });
  }
  group.broadcast(bytes_of(packed.data(), total), root)->wait();
  if (group.rank() != root) {
    for_each_slice([](std::byte* at, const Span& buffer) { std::memcpy(buffer.data, at, buffer.bytes()); });
  }
}

}  // namespace

std::vector<std::string> all_gather_bytes(ProcessGroup& group, const std::string& own) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> length = {static_cast<std::int64_t>(own.size())}, lengths(size);
  group.allgather(span_of(length), span_of(lengths))->wait();
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));

  std::string padded = own, all(longest * size, '\0');
  padded.resize(longest);
  group.allgather(bytes_of(padded.data(), longest), bytes_of(all.data(), all.size()))->wait();
  std::vector<std::string> result;
  for (std::size_t r = 0; r < size; ++r)
    result.push_back(all.substr(r * longest, static_cast<std::size_t>(lengths[r])));
  return result;
}

void broadcast_coalesced(ProcessGroup& group, const std::vector<Span>& buffers, int root) {
  std::vector<WorkPtr> alone;
  std::vector<Span> pack;
  std::size_t packed = 0;
  for (const auto& buffer : buffers) {
    if (buffer.bytes() >= pack_bytes) {
      alone.push_back(group.broadcast(buffer, root));
      continue;
    }
    pack.push_back(buffer);
    packed += buffer.bytes();
    if (packed < pack_bytes) continue;
    broadcast_pack(group, pack, root);
    pack.clear();
    packed = 0;
  }
  if (!pack.empty()) broadcast_pack(group, pack, root);
  for (const auto& work : alone) work->wait();
}

}  // namespace ddprun
