#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/cuda/emulator/nccl_segment.h"

namespace ddprun::cuda::emulator {

enum class NcclKind : std::int32_t { allreduce, reduce, broadcast, allgather, reduce_scatter, send, recv };

// A call on memory of a device. peer: the other rank of a send or recv; a collective's root is in the header.
struct NcclOperation {
  NcclKind kind{};
  NcclHeader header;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int peer = -1;
};

// The calls of one ncclGroup, as far as they have come. Data goes through the segment in chunks: no rank waits for
// another, but asks again. Ranks whose collectives differ never come to an end, as in NCCL.
class NcclTransfer {
 public:
  NcclTransfer(std::shared_ptr<NcclSegment> segment, int rank, std::vector<NcclOperation> operations);

  // Returns whether all have finished. REQUIRES: memory of the devices is open.
  bool advance();

 private:
  struct Progress {
    NcclOperation operation;
    std::uint64_t chunk = 0;
    bool has_posted = false;  // true if this rank's part of the chunk is posted
    bool done = false;
  };

  bool follows_another(std::size_t at) const;
  bool step(Progress& progress);
  bool step_collective(Progress& progress);
  bool step_send(Progress& progress);
  bool step_recv(Progress& progress);
  void post_collective(const NcclOperation& operation, std::uint64_t chunk);
  void take_collective(const NcclOperation& operation, std::uint64_t chunk);
  bool all_agree(const NcclHeader& header) const;

  NcclRank& own() const { return (*segment_)->ranks[static_cast<std::size_t>(rank_)]; }
  NcclRank& of(int rank) const { return (*segment_)->ranks[static_cast<std::size_t>(rank)]; }
  int size() const { return (*segment_)->size; }

  const std::shared_ptr<NcclSegment> segment_;
  const int rank_;
  std::vector<Progress> all_;
};

}  // namespace ddprun::cuda::emulator
