#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddprun::bench {

// Memory that the ranks of a benchmark share besides the group under test, mapped before they are forked. It holds the
// buffers of the floors (lower bounds) and the flags of a barrier.
class SharedMapping {
 public:
  static constexpr std::size_t slot_bytes = 512 * 1024;

  SharedMapping(int ranks, std::size_t buffer_bytes);
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  int ranks() const { return ranks_; }
  std::byte* buffer(int rank) const { return data_ + buffers_ + index(rank) * buffer_bytes_; }
  std::byte* result() const { return data_ + result_; }
  // One of two slots through which a rank passes data to others.
  std::byte* slot(int rank, std::size_t parity) const {
    return data_ + slots_ + (index(rank) * 2 + parity % 2) * slot_bytes;
  }

  // Memory for a message of a rank to the others.
  static constexpr std::size_t message_bytes = 256 * 1024;
  std::byte* message(int rank) const { return data_ + messages_ + index(rank) * message_bytes; }

  // Returns once every rank has called it; what a rank wrote before it is visible to all.
  void barrier(int rank);
  // Returns rank 0's value at every rank.
  std::int64_t broadcast(int rank, std::int64_t value);
  // Returns the one-way latency between ranks 0 and 1's processors, half a round trip of one flag. Every rank calls it.
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
  const int spins_;  // spins before a waiting rank yields
  const std::size_t buffer_bytes_;
  std::size_t slots_, messages_, buffers_, result_, end_;
  std::byte* data_;
  std::uint32_t barriers_ = 0;  // number that this rank has called
};

// Binds the calling thread to a processor of its rank: ranks are assigned round robin. Threads that it started before
// stay unbound: on the same processor they would only run while it sleeps.
void pin_to_processor(int rank);

}  // namespace ddprun::bench
