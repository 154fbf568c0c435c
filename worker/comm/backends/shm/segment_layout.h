#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/comm/backends/shm/futex_counter.h"
#include "worker/comm/backends/shm/regions.h"
#include "worker/comm/memory/shared_segment.h"

// The layout of the memory that the ranks of a group share. All of it starts as zero.
namespace ddprun::comm {

inline constexpr std::size_t cache_line_bytes = 64;
// Processors prefetch lines in pairs, so data of different writers is kept this far apart.
inline constexpr std::size_t line_pair_bytes = 128;

// Entries of a rank's announcement ring: see AnnouncementRing.
inline constexpr std::size_t ring_entries = 8;
// Places of a rank for payloads that do not fit into an announcement, which rounds use one after the other. With more
// of them than entries a line has left its readers' nearest caches before it is written again: an allgather of 16 KiB
// takes 1.54 us in place of 1.78.
inline constexpr std::size_t payload_places = 4 * ring_entries;

// The kind of payload that a rank publishes with the announcement of a collective.
enum class PayloadKind : std::uint32_t {
  none,    // nothing: its data moves through staging slots
  data,    // its input
  region,  // the RegionHandle of its input, which lies in registered memory
};

// A rank's announcement of a collective. A small payload lies in the cache lines of the counter that announces it.
struct alignas(line_pair_bytes) Announcement {
  static constexpr std::size_t embedded_bytes = 104;

  FutexCounter announced;  // the number of times that this entry was announced
  std::uint64_t call;      // identifies the operation
  std::uint32_t retired;   // rounds that this rank has retired: the lower half of the count
  PayloadKind payload_kind;
  std::byte payload[embedded_bytes];
};
static_assert(sizeof(Announcement) == line_pair_bytes);

// A rank's state in the collectives, written by that rank except where noted.
struct alignas(line_pair_bytes) RankState {
  FutexCounter phases;  // completed phases
  std::atomic<PeerState> peer_state;
  LastProcessor processor;
  std::array<Announcement, ring_entries> announcements;
  alignas(line_pair_bytes) FutexCounter barriers;  // barriers entered at the end of a round
  // Incremented by senders: offers posted for this rank.
  alignas(line_pair_bytes) FutexCounter incoming_offers;
};

// A message that one rank offers to send to another. The sender takes a free offer and fills it in; the receiver
// accepts it, and frees it once it has received all bytes.
struct alignas(cache_line_bytes) Offer {
  enum State : std::uint32_t { free, posted, accepted };
  std::atomic<std::uint32_t> state;
  std::uint32_t dtype;
  std::uint64_t count;  // elements
  std::int64_t tag;
  std::uint64_t number;  // the message's number among those with its sender, receiver and tag, from 0
  RegionHandle region;   // the message's memory, which the receiver reads; not reachable: it moves in chunks
};
static_assert(sizeof(Offer) == cache_line_bytes);

// Messages from one rank to another. One accepted offer at a time moves through the channel's buffers, in chunks.
struct alignas(line_pair_bytes) Channel {
  static constexpr std::size_t max_offers = 62;
  static constexpr std::size_t chunk_bytes = std::size_t{64} * 1024;
  static constexpr std::uint32_t buffers = 2;

  alignas(cache_line_bytes) FutexCounter posted;  // offers
  FutexCounter produced;                          // chunks
  alignas(cache_line_bytes) FutexCounter accepted;
  FutexCounter consumed;
  FutexCounter freed;
  std::array<Offer, max_offers> offers;
};

// The processors that any rank may run on, by the kernel's numbers. Each rank adds its own.
class ProcessorSet {
 public:
  // Adds those that the calling thread may run on.
  void add_own();
  int count() const;

 private:
  std::array<std::atomic<std::uint64_t>, 64> words_;
};

class SegmentLayout {
 public:
  // The largest size of PayloadKind::data.
  static constexpr std::size_t max_payload_bytes = std::size_t{16} * 1024;

  // slot_bytes: the size of one of a rank's two staging slots; a multiple of 4096. threads_per_rank: threads that need
  // a processor while the ranks wait for each other.
  static std::size_t bytes_for(int ranks, std::size_t slot_bytes);
  SegmentLayout(SharedSegment segment, int ranks, std::size_t slot_bytes, int threads_per_rank = 1);

  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  // Valid once all ranks have added their processors.
  SpinPolicy spin_policy() const { return SpinPolicy::for_threads(ranks_ * threads_per_rank_, processors().count()); }
  // Returns whether no processor is left for a second thread of each rank. Valid when spin_policy() is.
  bool cores_are_taken() const { return processors().count() < 2 * ranks_ * threads_per_rank_; }
  ProcessorSet& processors() const { return *reinterpret_cast<ProcessorSet*>(segment_.data()); }
  RankState& rank(int rank) const { return states_[index(rank)]; }
  // A rank's staging slot for phases of this parity.
  std::byte* slot(int rank, std::uint32_t phase) const {
    return at(offsets_.slots + (index(rank) * 2 + phase % 2) * slot_bytes_);
  }
  // A slot has one section for each rank: whole cache lines, so that no two ranks write the same line.
  std::size_t section_bytes() const { return section_bytes_; }
  std::byte* section(int owner, int rank, std::uint32_t phase) const {
    return slot(owner, phase) + index(rank) * section_bytes_;
  }
  // The place of a payload that does not fit into its announcement.
  std::byte* payload(int rank, std::uint64_t round) const {
    return at(offsets_.payloads + (index(rank) * payload_places + round % payload_places) * max_payload_bytes);
  }
  Channel& channel(int from, int to) const;
  std::byte* channel_buffer(int from, int to, std::uint32_t chunk) const;

 private:
  // The offsets at which each kind of memory begins, in this order.
  struct Offsets {
    std::size_t states, payloads, slots, channels, channel_buffers, end;
    Offsets(std::size_t ranks, std::size_t slot_bytes);
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::byte* at(std::size_t offset) const { return segment_.data() + offset; }

  SharedSegment segment_;
  int ranks_;
  std::size_t slot_bytes_;
  std::size_t section_bytes_;
  int threads_per_rank_;
  Offsets offsets_;
  RankState* states_;
};

// Calls body(r) for every rank but this one.
template <class Body>
void for_each_peer(int ranks, int rank, Body body) {
  for (int r = 0; r < ranks; ++r)
    if (r != rank) body(r);
}

}  // namespace ddprun::comm
