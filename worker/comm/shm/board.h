#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddprun/worker/comm/shm/shared_segment.h"
#include "ddprun/worker/comm/shm/signal_word.h"

// What lies where in the memory that the ranks of a group share. Everything starts as zero.
namespace ddprun::comm {

inline constexpr std::size_t cache_line = 128;  // two of 64 bytes: neighbours are fetched together

// A rank's part in the collectives, written by that rank alone.
struct alignas(cache_line) RankState {
  SignalWord phase;  // how many phases it has completed
  std::atomic<Presence> presence;
  std::array<std::atomic<std::uint64_t>, 2> call;  // what it calls, in the even and in the odd phases
  // Raised by others: how many offers they have posted for it.
  alignas(cache_line) SignalWord mail;
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
  static constexpr std::size_t piece_bytes = 64 * 1024;
  static constexpr std::uint32_t pieces_at_once = 2;

  alignas(64) SignalWord posted;  // offers
  SignalWord produced;            // pieces
  alignas(64) SignalWord accepted;
  SignalWord consumed;
  SignalWord freed;
  std::array<Offer, offers_at_once> offers;
};

class Board {
 public:
  // slot_bytes: of one of a rank's two pieces of staging memory; a multiple of 4096.
  static std::size_t bytes_for(int ranks, std::size_t slot_bytes);
  Board(SharedSegment segment, int ranks, std::size_t slot_bytes);

  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  RankState& rank(int rank) const;
  // A rank's staging memory for phases of this parity.
  std::byte* slot(int rank, std::uint32_t phase) const;
  Channel& channel(int from, int to) const;
  std::byte* staging(int from, int to, std::uint32_t piece) const;

 private:
  std::byte* at(std::size_t offset) const { return segment_.data() + offset; }

  SharedSegment segment_;
  int ranks_;
  std::size_t slot_bytes_;
};

}  // namespace ddprun::comm
