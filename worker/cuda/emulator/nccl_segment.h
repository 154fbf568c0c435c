#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddprun::cuda::emulator {

// The memory that the ranks of an emulated communicator share, in one process or in several, also in different
// namespaces: a POSIX shared memory object, whose name is removed once all ranks have joined. It ends with the last
// process that has it open.

inline constexpr int max_nccl_ranks = 16;
inline constexpr int max_nccl_children = 16;
inline constexpr std::size_t nccl_slot_bytes = 128 * 1024;

// Identifies a segment on this machine.
struct SegmentName {
  std::array<std::uint64_t, 2> number{};  // random: no process can open a segment whose name it does not know
};

// The call of a rank; the ranks of a collective agree on all but the factor.
struct NcclHeader {
  std::int32_t kind = 0;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  double factor = 1;
};

// A chunk of data on its way. posted: the number of chunks written; taken: the number of them that its reader has read.
struct NcclMailbox {
  NcclHeader header;
  std::atomic<std::uint64_t> posted;
  std::atomic<std::uint64_t> taken;
  alignas(64) std::array<std::byte, nccl_slot_bytes> data;
};

struct NcclRank {
  std::atomic<bool> joined;
  std::uint64_t host;  // a digest of its identity
  std::array<char, 32> bus_id;
  NcclHeader header;
  std::atomic<std::uint64_t> posted;  // chunks of collectives that it has written
  std::atomic<std::uint64_t> taken;   // chunks of collectives of which it has read all ranks' data
  alignas(64) std::array<std::byte, nccl_slot_bytes> data;
};

struct NcclChild {
  std::atomic<std::uint32_t> state;  // 0 if free, 1 if it is being created, 2 if it is there
  std::uint64_t excluded;            // a bit for each rank
  SegmentName name;
};

// All of it is zero at first.
struct NcclShared {
  std::atomic<std::int32_t> size;
  std::array<NcclChild, max_nccl_children> children;
  std::array<NcclRank, max_nccl_ranks> ranks;
  std::array<std::array<NcclMailbox, max_nccl_ranks>, max_nccl_ranks> mailboxes;  // by sender and receiver
};

class NcclSegment {
 public:
  // Returns nullptr if the system has refused.
  static std::shared_ptr<NcclSegment> create();
  static std::shared_ptr<NcclSegment> open(const SegmentName& name);
  ~NcclSegment();
  NcclSegment(const NcclSegment&) = delete;
  NcclSegment& operator=(const NcclSegment&) = delete;

  SegmentName name() const { return name_; }
  NcclShared* operator->() const { return shared_; }

  // Returns whether all ranks have joined.
  bool complete() const;
  // Returns whether two ranks of one host have the same device. REQUIRES: complete()
  bool shares_a_device() const;
  // Returns the segment of the ranks that are not excluded, the same for all callers; nullptr if it cannot be made.
  std::shared_ptr<NcclSegment> child_without(std::uint64_t excluded) const;

 private:
  NcclSegment(const SegmentName& name, int file);

  const SegmentName name_;
  NcclShared* shared_ = nullptr;
  mutable bool has_name_ = true;  // as far as this object knows
};

}  // namespace ddprun::cuda::emulator
