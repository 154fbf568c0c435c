#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <vector>

#include "ddprun/worker/comm/backends/shm/shared_segment.h"
#include "ddprun/worker/comm/span.h"

namespace ddprun::comm {

// Where some memory of a rank lies, in words that another rank understands.
struct RegionHandle {
  std::int32_t process = 0;      // that has the segment open; 0: memory that nobody else can reach
  std::int32_t descriptor = -1;  // there
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;   // of the memory in the segment
  std::uint32_t segment = 0;  // a number that its rank uses once
  std::uint32_t freed = 0;    // segments that its rank has freed by now

  bool reachable() const { return process != 0; }
};

// A rank's memory that was allocated for being shared: found again by its address. Thread-safe.
class OwnRegions : public std::enable_shared_from_this<OwnRegions> {
 public:
  // Freed, and given back to the system, with the last copy of the pointer; also after this object. Throws Errc::io.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  // Not reachable unless all of it lies in one allocation.
  RegionHandle handle_of(ConstSpan memory) const;
  // Changes with every allocation and every freeing.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  struct Region {
    std::uint32_t number;
    SharedSegment segment;
  };
  void free(std::uint32_t number);

  const std::int32_t process_ = ::getpid();  // asked once: a system call each time
  mutable std::mutex mutex_;
  std::list<Region> regions_;
  std::uint32_t next_ = 0, freed_ = 0;
  std::atomic<std::uint64_t> version_ = 0;
};

// Finds the handles of one rank's memory without a lock, as long as it lies where the last one's did and nothing was
// allocated or freed since. One thread at a time.
class HandleFinder {
 public:
  explicit HandleFinder(const OwnRegions& regions) : regions_(regions) {}
  RegionHandle handle_of(ConstSpan memory);

 private:
  const OwnRegions& regions_;
  std::uint64_t version_ = 0;
  std::uintptr_t start_ = 0;  // of the segment
  RegionHandle last_;         // of the segment's start
};

// Other ranks' memory, mapped when it is first needed and kept until its rank frees some. One thread at a time.
class PeerRegions {
 public:
  explicit PeerRegions(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  // Throws Errc::unsupported when it cannot be opened.
  std::byte* map(int rank, const RegionHandle& handle) {
    auto& known = ranks_[static_cast<std::size_t>(rank)];
    if (!known.last || known.last_segment != handle.segment || known.freed != handle.freed) find_start(known, handle);
    return known.last + handle.offset;
  }

 private:
  struct Mapping {
    std::uint32_t segment;
    SharedSegment memory;
  };
  struct Rank {
    std::uint32_t freed = 0;
    std::uint32_t last_segment = 0;  // the last one asked for, and where it lies here
    std::byte* last = nullptr;
    std::vector<Mapping> mappings;
  };
  static void find_start(Rank& rank, const RegionHandle& handle);
  std::vector<Rank> ranks_;
};

}  // namespace ddprun::comm
