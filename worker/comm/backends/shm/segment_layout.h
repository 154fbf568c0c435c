#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddprun/worker/comm/backends/shm/futex_counter.h"
#include "ddprun/worker/comm/backends/shm/shared_segment.h"

// What lies where in the memory that the ranks of a group share. Everything starts as zero.
namespace ddprun::comm {

inline constexpr std::size_t cache_line = 128;  // two of 64 bytes: neighbours are fetched together

// How many rounds a rank can be in at once: see AnnouncementRing.
inline constexpr std::size_t rounds_at_once = 8;

// What a rank says at the beginning of a collective. A small gift lies in the cache line of the word that announces it.
struct alignas(cache_line) Announcement {
  static constexpr std::size_t room = 104;

  FutexCounter made;       // how often
  std::uint64_t call;      // identifies the operation
  std::uint32_t finished;  // rounds that this rank has finished: the lower half of their number
  std::uint32_t given;     // what the gift is
  std::byte gift[room];
};
static_assert(sizeof(Announcement) == cache_line);

// A rank's part in the collectives, written by that rank alone.
struct alignas(cache_line) RankState {
  FutexCounter phase;  // how many phases it has completed
  std::atomic<PeerState> presence;
  std::array<Announcement, rounds_at_once> announcements;
  alignas(cache_line) FutexCounter met;  // how often it has come to a round's second meeting
  // Raised by others: how many offers they have posted for it.
  alignas(cache_line) FutexCounter mail;
};

// What one rank offers to send to another. The sender takes a free one and fills it in; the receiver accepts it, and
// frees it once it has all bytes.
struct alignas(64) Offer {
  enum State : std::uint32_t { free, posted, accepted };
  std::atomic<std::uint32_t> state;
  std::uint32_t dtype;
  std::uint64_t count;  // elements
  std::int64_t tag;
  std::uint64_t ticket;  // the how-manieth of this tag
};

// From one rank to another. One accepted offer at a time moves through the staging memory.
struct alignas(cache_line) Channel {
  static constexpr std::size_t offers_at_once = 62;
  static constexpr std::size_t piece_bytes = std::size_t{64} * 1024;
  static constexpr std::uint32_t pieces_at_once = 2;

  alignas(64) FutexCounter posted;  // offers
  FutexCounter produced;            // pieces
  alignas(64) FutexCounter accepted;
  FutexCounter consumed;
  FutexCounter freed;
  std::array<Offer, offers_at_once> offers;
};

// The processors that the ranks may run on, by the kernel's numbers: each adds its own.
class ProcessorSet {
 public:
  // Those that this thread may run on.
  void add_own();
  int count() const;

 private:
  std::array<std::atomic<std::uint64_t>, 64> words_;
};

class SegmentLayout {
 public:
  // slot_bytes: of one of a rank's two pieces of staging memory; a multiple of 4096. threads_per_rank: that are at work
  // while the ranks wait for each other.
  static std::size_t bytes_for(int ranks, std::size_t slot_bytes);
  SegmentLayout(SharedSegment segment, int ranks, std::size_t slot_bytes, int threads_per_rank = 1);

  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  // The largest gift.
  std::size_t gift_bytes() const { return largest_gift; }

  // Once all ranks have added theirs to the processors.
  SpinPolicy patience() const { return SpinPolicy::for_threads(ranks_ * threads_per_rank_, processors().count()); }
  ProcessorSet& processors() const { return *reinterpret_cast<ProcessorSet*>(segment_.data()); }
  RankState& rank(int rank) const { return states_[index(rank)]; }
  // A rank's staging memory for phases of this parity.
  std::byte* slot(int rank, std::uint32_t phase) const {
    return at(places_.slots + (index(rank) * 2 + phase % 2) * slot_bytes_);
  }
  // For a gift that its announcement has no room for.
  std::byte* gift(int rank, std::uint64_t round) const {
    return at(places_.gifts + (index(rank) * rounds_at_once + round % rounds_at_once) * largest_gift);
  }
  Channel& channel(int from, int to) const;
  std::byte* staging(int from, int to, std::uint32_t piece) const;

 private:
  static constexpr std::size_t largest_gift = std::size_t{16} * 1024;

  // Where each kind of thing begins, in this order.
  struct Places {
    std::size_t states, gifts, slots, channels, staging, end;
    Places(std::size_t ranks, std::size_t slot_bytes);
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::byte* at(std::size_t offset) const { return segment_.data() + offset; }

  SharedSegment segment_;
  int ranks_;
  std::size_t slot_bytes_;
  int threads_per_rank_;
  Places places_;
  RankState* states_;
};

}  // namespace ddprun::comm
