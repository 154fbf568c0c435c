#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/comm/operations/operation.h"
#include "worker/comm/process_group.h"
#include "worker/comm/span.h"

namespace ddprun::comm {

// A rank and the size of its group.
struct RankInfo {
  int rank = 0;
  int size = 1;
};

// The sizes of the ranks' parts of a buffer, in rank order and in elements.
class Parts {
 public:
  explicit Parts(std::vector<std::size_t> counts);

  std::size_t count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::size_t offset(int rank) const { return offsets_[static_cast<std::size_t>(rank)]; }
  std::size_t total() const { return offsets_.back(); }
  std::size_t largest() const;
  const std::vector<std::size_t>& counts() const { return counts_; }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;  // with the total at the end
};

// The memory of an operation with unequal parts or several spans. It is shared, since a call is copied.
struct Layout {
  std::unique_ptr<const Parts> input_parts, output_parts;
  std::vector<ConstSpan> inputs;  // as many as outputs, if the operation is coalesced
  std::vector<Span> outputs;
};

// A rank's call of an operation, with its memory. The arguments have been checked.
//
// input_part() and output_part() return a rank's part of a buffer that consists of equal or unequal parts: allgather's
// and gather's output, reduce_scatter's and scatter's input, both of all_to_all. A buffer that only the root uses is
// empty at the other ranks.
struct Call {
  Operation operation;
  ConstSpan input;  // the output's memory, or this rank's part of it, if the operation is in place
  Span output;
  OpOptions options;
  std::shared_ptr<const Layout> layout;  // for unequal parts and for several spans

  ConstSpan input_part(int rank) const;
  Span output_part(int rank) const;
  // Returns the device whose memory the call names, or host_memory.
  std::int32_t device() const {
    return operation.coalesced() ? device_of_spans() : std::max(input.device, output.device);
  }
  // Returns the size of the largest part: the same at every rank, except with own_parts().
  std::size_t largest_part() const;

 private:
  std::int32_t device_of_spans() const;
};

// A collective as an executor passes it to a transport.
struct Collective : Call {
  std::uint64_t sequence = 0;           // the same on every rank
  std::chrono::milliseconds timeout{};  // a backstop: the group itself enforces the user's
};

// A send or receive that a transport has started. Destroying it before it has finished leaves its memory in use until
// the transport is interrupted.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until it has finished, or throws after the timeout. Throws the transport's error.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  // The sending rank of a receive that has finished.
  virtual int source() const = 0;
  // To be called before wait(), which may spin only while this is true: a thread of the user waits for the result. It
  // outlives wait(). Without it wait() may always spin.
  void spin_while(const std::atomic<bool>& awaited) { awaited_ = &awaited; }

 protected:
  const std::atomic<bool>* awaited() const { return awaited_; }  // null: without spin_while()

 private:
  const std::atomic<bool>* awaited_ = nullptr;
};

}  // namespace ddprun::comm
