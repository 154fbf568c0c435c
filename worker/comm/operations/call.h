#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddprun/worker/comm/operations/operation.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/comm/span.h"

namespace ddprun::comm {

// How a buffer is divided among the ranks: one part each, in rank order. In elements.
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
  std::vector<std::size_t> offsets_;  // one more: the total
};

// The memory of an operation whose parts are unequal or which takes several spans. Shared, since a call is copied.
struct Layout {
  std::unique_ptr<const Parts> input_parts, output_parts;
  std::vector<ConstSpan> inputs;  // coalesced: as many as outputs
  std::vector<Span> outputs;
};

// One call of one rank: what is to be done, with which memory. Known to be right.
//
// Where ranks have parts of a buffer (allgather's and gather's output, reduce_scatter's and scatter's input, both of
// all_to_all), input_part() and output_part() find them, be they equal or not. Where only the root gets or gives, the
// others' output or input is empty.
struct Call {
  Operation operation;
  ConstSpan input;  // in place: the same memory as the output, or as this rank's part of it
  Span output;
  OpOptions options;
  std::shared_ptr<const Layout> layout;  // of unequal parts and of several spans

  ConstSpan input_part(int rank) const;
  Span output_part(int rank) const;
  // Of any rank's part: the same number on every rank, but for own_parts().
  std::size_t largest_part() const;
};

// A collective as an executor hands it to a transport.
struct Collective : Call {
  std::uint64_t sequence = 0;           // the same on every rank
  std::chrono::milliseconds timeout{};  // a backstop: the group itself enforces the deadline
};

}  // namespace ddprun::comm
