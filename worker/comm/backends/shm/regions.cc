#include "worker/comm/backends/shm/regions.h"

#include <algorithm>
#include <iterator>
#include <sys/mman.h>

#include "common/error.h"
#include "worker/comm/registered_buffer.h"

namespace ddprun::comm {

std::shared_ptr<std::byte> OwnRegions::allocate(std::size_t bytes) {
  const auto size = whole_pages(bytes);
  auto segment = reserve_ ? reserve_->take(size) : SharedSegment::create(size);
  auto* const data = segment.data();
  const std::lock_guard lock(mutex_);
  const auto number = next_++;
  ++version_;
  regions_.push_back({number, std::move(segment)});
  return {data, [self = shared_from_this(), number](std::byte*) { self->free(number); }};
}

// Other ranks may keep the segment mapped until their next lookup; its pages are released at once, unless this is a
// forked child, whose parent still uses them.
void OwnRegions::free(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) { return r.number == number; });
  if (::getpid() == process_) ::madvise(found->segment.data(), found->segment.bytes(), MADV_REMOVE);
  regions_.erase(found);
  ++freed_;
  ++version_;
}

RegionHandle OwnRegions::handle_of(ConstSpan memory) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  const std::lock_guard lock(mutex_);
  for (const auto& [number, segment] : regions_) {
    const auto start = reinterpret_cast<std::uintptr_t>(segment.data());
    if (begin < start || begin + memory.bytes() > start + segment.bytes()) continue;
    return {.process = process_,
            .descriptor = segment.descriptor(),
            .segment_bytes = segment.bytes(),
            .offset = begin - start,
            .segment = number,
            .freed = freed_};
  }
  return {};
}

// The version is read first: a change in between makes the next lookup a full one.
RegionHandle RegionLookup::handle_of(ConstSpan memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  const auto version = regions_.version();
  auto handle = last_;
  handle.offset = begin - start_;
  if (version == version_ && begin >= start_ && handle.offset + memory.bytes() <= handle.segment_bytes) return handle;
  handle = regions_.handle_of(memory);
  version_ = version;
  start_ = begin - handle.offset;
  last_ = handle;
  return handle;
}

void PeerRegions::map_segment(Rank& rank, const RegionHandle& handle) {
  auto& mappings = rank.mappings;
  rank.last = nullptr;
  if (rank.freed != handle.freed) mappings.clear();
  rank.freed = handle.freed;
  auto known =
      std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& m) { return m.segment == handle.segment; });
  if (known == mappings.end()) {
    const auto address = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
    mappings.push_back({handle.segment, SharedSegment::open(address, handle.segment_bytes)});
    known = std::prev(mappings.end());
  }
  rank.last = known->memory.data();
  rank.last_segment = handle.segment;
}

}  // namespace ddprun::comm
