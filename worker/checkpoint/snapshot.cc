#include "worker/checkpoint/snapshot.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <latch>
#include <map>
#include <utility>

#include "common/rounding.h"
#include "worker/checkpoint/streaming_copy.h"

namespace ddprun::checkpoint {
namespace {

constexpr std::size_t copied_at_once = std::size_t{512} << 10;  // so long a thread waits for another one at most

struct Copy {
  std::span<const std::byte> from;
  std::size_t to;  // offset in the snapshot's memory
};

std::array<std::vector<TensorView>*, 4> files_of(Content& content) {
  return {&content.model, &content.optimizer, &content.hook, &content.ema};
}

std::vector<Copy> in_pieces(const std::vector<Copy>& copies) {
  std::vector<Copy> pieces;
  for (const auto& [from, to] : copies)
    for (std::size_t begin = 0; begin < from.size(); begin += copied_at_once)
      pieces.push_back({from.subspan(begin, std::min(copied_at_once, from.size() - begin)), to + begin});
  return pieces;
}

}  // namespace

struct Snapshot::Rest {
  explicit Rest(std::vector<Copy> all) : pieces(std::move(all)), missing(std::ssize(pieces)) {}

  const std::vector<Copy> pieces;
  std::atomic<std::size_t> next = 0;
  std::latch missing;
};

Snapshot::Snapshot(Content content, const Memory& now, const Memory& later, CopyMemory& memory)
    : content_(std::move(content)) {
  std::map<const std::byte*, std::size_t> sizes, offsets;  // by memory: a tensor may be in two files
  for (const auto* file : files_of(content_))
    for (const auto& tensor : *file) {  // one without elements may begin where another does
      auto& size = sizes[tensor.bytes.data()];
      size = std::max(size, tensor.bytes.size());
    }

  std::size_t total = 0;
  const auto place = [&](const Memory& of) {
    std::vector<Copy> copies;
    for (const auto& bytes : of) {
      const auto found = sizes.find(bytes.data());
      if (found == sizes.end() || found->second == 0 || bytes.size() < found->second) continue;
      if (!offsets.emplace(bytes.data(), total).second) continue;
      copies.push_back({.from = bytes.first(found->second), .to = total});
      total += round_up(found->second, copy_alignment);
    }
    return copies;
  };
  const auto at_once = place(now);
  rest_ = std::make_unique<Rest>(in_pieces(place(later)));

  memory_ = memory.reserve(total);
  for (auto* file : files_of(content_))
    for (auto& tensor : *file)
      if (const auto copy = offsets.find(tensor.bytes.data()); copy != offsets.end())
        tensor.bytes = {memory_ + copy->second, tensor.bytes.size()};
  for (const auto& [from, to] : at_once) std::memcpy(memory_ + to, from.data(), from.size());
}

Snapshot::~Snapshot() = default;

void Snapshot::copy_rest() {
  for (std::size_t i = 0; (i = rest_->next++) < rest_->pieces.size();) {
    const auto& [from, to] = rest_->pieces[i];
    copy_streaming(memory_ + to, from);
    rest_->missing.count_down();
  }
}

void Snapshot::wait() const {
  rest_->missing.wait();
}

}  // namespace ddprun::checkpoint
