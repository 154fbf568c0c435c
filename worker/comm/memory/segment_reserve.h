#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "worker/comm/memory/shared_segment.h"

namespace ddprun::comm {

// Shared memory whose pages are in place, for the group that this process forms next (ElasticGroup). The first
// write to a page of a new segment takes 1 to 3 us: 9 ms for 11 MB, while all ranks wait. Some time after a group has
// taken its last segment, a thread makes others of the same sizes, as far as they fit in a limit.
//
// A segment serves one group: ranks of an earlier one that are not known to have ended may still write to theirs.
//
// Threads: take() and held() are thread-safe; nothing is called during begin_group(). Errors: take() throws what
// SharedSegment::create() does; what cannot be made ahead is not made.
class SegmentReserve {
 public:
  struct Options {
    std::size_t most_bytes = std::size_t{64} << 20;  // of the segments that are held
    std::chrono::milliseconds rest{1000};            // from the last take() until segments are made
  };

  explicit SegmentReserve(Options options) : options_(options) {}

  // Segments that are taken from now on are those of another group.
  void begin_group();
  // Returns a segment of so many bytes, which are zero.
  SharedSegment take(std::size_t bytes);
  // Returns the bytes of the segments that are held.
  std::size_t held() const;

 private:
  struct Held {
    SharedSegment segment;
    std::uint64_t made_in;  // the group at that time; the next one takes it
  };
  void start();
  void fill(const std::stop_token& stop);
  bool has_room_for(std::size_t bytes);
  void await_rest(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  static std::optional<SharedSegment> prepared(std::size_t bytes, const std::stop_token& stop);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable_any taken_;
  std::vector<std::size_t> sizes_;         // of the segments that the present group has taken
  std::multimap<std::size_t, Held> held_;  // by size
  std::uint64_t group_ = 0;                // the number of the present one
  std::size_t held_bytes_ = 0;
  std::jthread thread_;  // ends before what it uses
};

}  // namespace ddprun::comm
