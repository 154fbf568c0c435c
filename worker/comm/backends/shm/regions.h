#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker/comm/memory/segment_reserve.h"
#include "worker/comm/memory/shared_segment.h"
#include "worker/comm/span.h"

namespace ddprun::comm {

// Describes memory of a rank such that another process of the host can map it.
struct RegionHandle {
  std::int32_t process = 0;      // the pid that has the segment open; 0 for memory that no other process can map
  std::int32_t descriptor = -1;  // the segment's in that process
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;   // the memory's in the segment
  std::uint32_t segment = 0;  // the segment's number, which its rank uses once
  std::uint32_t freed = 0;    // the number of segments that its rank has freed so far

  bool reachable() const { return process != 0; }
};

// The registered memory of a rank: allocated in segments that other processes can map, and found again by its address.
// Thread-safe.
class OwnRegions : public std::enable_shared_from_this<OwnRegions> {
 public:
  // reserve: segments are taken from there; null: they are made.
  explicit OwnRegions(std::shared_ptr<SegmentReserve> reserve = nullptr) : reserve_(std::move(reserve)) {}

  // The memory is freed with the last copy of the pointer, which may outlive every other reference to this object.
  // Throws Errc::io.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  // Returns a handle that cannot be mapped unless all of the memory lies in one allocation.
  RegionHandle handle_of(ConstSpan memory) const;
  // Changes with every allocation and every deallocation.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  struct Region {
    std::uint32_t number;
    SharedSegment segment;
  };
  void free(std::uint32_t number);

  const std::shared_ptr<SegmentReserve> reserve_;
  const std::int32_t process_ = ::getpid();  // kept, because every getpid() is a system call
  mutable std::mutex mutex_;
  std::list<Region> regions_;
  std::uint32_t next_ = 0, freed_ = 0;
  std::atomic<std::uint64_t> version_ = 0;
};

// Looks up handles in OwnRegions and caches the last segment: no lock is taken while memory lies in that segment and
// nothing was allocated or freed since. One thread at a time.
class RegionLookup {
 public:
  explicit RegionLookup(const OwnRegions& regions) : regions_(regions) {}
  RegionHandle handle_of(ConstSpan memory);

 private:
  const OwnRegions& regions_;
  std::uint64_t version_ = 0;
  std::uintptr_t start_ = 0;  // the segment's start
  RegionHandle last_;         // the handle of the segment's start
};

// Registered memory of other ranks: mapped when first needed, unmapped once its rank has freed any segment. One thread
// at a time.
class PeerRegions {
 public:
  explicit PeerRegions(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  // Throws Errc::unsupported when it cannot be opened.
  std::byte* map(int rank, const RegionHandle& handle) {
    auto& known = ranks_[static_cast<std::size_t>(rank)];
    if (!known.last || known.last_segment != handle.segment || known.freed != handle.freed) map_segment(known, handle);
    return known.last + handle.offset;
  }

 private:
  struct Mapping {
    std::uint32_t segment;
    SharedSegment memory;
  };
  struct Rank {
    std::uint32_t freed = 0;
    std::uint32_t last_segment = 0;  // the last one that was looked up
    std::byte* last = nullptr;       // and its address in this process
    std::vector<Mapping> mappings;
  };
  static void map_segment(Rank& rank, const RegionHandle& handle);
  std::vector<Rank> ranks_;
};

}  // namespace ddprun::comm
