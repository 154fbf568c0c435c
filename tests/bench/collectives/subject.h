#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "tests/bench/collectives/stage.h"

namespace ddprun::bench {

// Something that carries a collective out on memory of its own choice, to be timed beside others of its kind.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string name() const = 0;
  virtual bool registered() const { return false; }
  // Whether it leaves work to other threads of its process: what waits awake, or holds a processor, would starve them.
  virtual bool has_threads() const { return false; }
  // The memory that an operation on this many bytes reads, to be written anew before each call. Every rank calls it.
  virtual void* input(std::size_t bytes) = 0;
  // What it wrote, for the comparison with what is right.
  virtual const void* output() = 0;
  virtual void run() = 0;
};
using Subjects = std::vector<std::unique_ptr<Subject>>;

// The least that an allreduce of float32 can cost: what the hardware takes, without types, order or failure.
std::unique_ptr<Subject> shared_result_floor(Stage& stage, int rank);  // every rank may read the one result
std::unique_ptr<Subject> in_place_floor(Stage& stage, int rank);       // buffers that all ranks can read and write
std::unique_ptr<Subject> staged_floor(Stage& stage, int rank);         // private buffers, through shared memory
// Copying the buffer once, alone.
std::unique_ptr<Subject> copy_floor();

}  // namespace ddprun::bench
