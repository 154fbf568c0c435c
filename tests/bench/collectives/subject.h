#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "tests/bench/collectives/shared_mapping.h"

namespace ddprun::bench {

// An implementation of a collective to measure, with memory of its own.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string name() const = 0;
  virtual bool registered() const { return false; }
  // Returns whether other threads of its process work for it: a spinning or bound thread would take their processor.
  virtual bool has_threads() const { return false; }
  // The memory that an operation on this many bytes reads, to be rewritten before each call. Every rank calls it.
  virtual void* input(std::size_t bytes) = 0;
  // Returns its result, to be verified; null if there is none.
  virtual const void* output() = 0;
  virtual void run() = 0;
};
using Subjects = std::vector<std::unique_ptr<Subject>>;

// Lower bounds (floors) of an allreduce of float32: the time of the hardware, without types, order or error handling.
std::unique_ptr<Subject> shared_result_floor(SharedMapping& mapping, int rank);  // every rank may read the one result
std::unique_ptr<Subject> in_place_floor(SharedMapping& mapping, int rank);  // buffers that all ranks can read and write
std::unique_ptr<Subject> staged_floor(SharedMapping& mapping, int rank);    // private buffers, through shared memory
// This floor only copies the buffer once.
std::unique_ptr<Subject> copy_floor();

}  // namespace ddprun::bench
