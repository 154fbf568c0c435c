#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddprun::bench {

// What the ranks of one benchmark share beside the group under test: a mapping made before they are forked. It holds
// the buffers of the floors, and the flags by which the ranks meet.
class Stage {
 public:
  static constexpr std::size_t slot_bytes = 512 * 1024;

  Stage(int ranks, std::size_t buffer_bytes);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage();

  int ranks() const { return ranks_; }
  std::byte* buffer(int rank) const { return data_ + buffers_ + index(rank) * buffer_bytes_; }
  std::byte* result() const { return data_ + result_; }
  // One of two, for what a rank passes on to others.
  std::byte* slot(int rank, std::size_t parity) const {
    return data_ + slots_ + (index(rank) * 2 + parity % 2) * slot_bytes;
  }

  // For what a rank has to tell the others.
  static constexpr std::size_t note_bytes = 256 * 1024;
  std::byte* note(int rank) const { return data_ + notes_ + index(rank) * note_bytes; }

  // Returns once every rank has come; what a rank wrote before is visible to all.
  void meet(int rank);
  // Rank 0's value, at every rank.
  std::int64_t agree(int rank, std::int64_t value);
  // One-way, between the processors of ranks 0 and 1: half a round trip of one flag. Every rank calls it.
  double latency_ns(int rank);

 private:
  struct alignas(128) Flag {
    std::atomic<std::uint32_t> value;
  };
  struct Header;

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Header& header() const;
  void await(const Flag& flag, std::uint32_t value) const;

  const int ranks_;
  const int spins_;  // before a rank lets another one run
  const std::size_t buffer_bytes_;
  std::size_t slots_, notes_, buffers_, result_, end_;
  std::byte* data_;
  std::uint32_t meetings_ = 0;  // that this rank has been to
};

// Binds the calling thread to the processor that is this rank's when the ranks are dealt out in turn. Threads that it
// started before stay free: bound with it, they would only run while it sleeps.
void pin_to_processor(int rank);

}  // namespace ddprun::bench
