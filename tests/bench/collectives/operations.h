#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"

namespace ddprun::bench {

// The memory of one call; input and output are the same where an operation works in place.
struct Memory {
  Span input, output;
};

// A collective to measure. Its size is that of a rank's input or output, whichever is larger.
struct Operation {
  const char* name;
  bool part_in, part_out;  // the input or the output is one of as many parts as there are ranks
  bool in_place;
  double (*bus_factor)(double ranks);  // as in nccl-tests: algorithm bandwidth to bus bandwidth
  WorkPtr (*start)(ProcessGroup& group, const Memory& memory, OpOptions options);
  // Returns element i of rank's expected output, if element j of rank r's input is value(r, j).
  double (*expected)(int rank, std::size_t i, int ranks, std::size_t part, double (*value)(int r, std::size_t j));
};

// Throws Errc::usage naming the operations.
const Operation& operation_named(const std::string& name);
std::string operation_names();

DType dtype_named(const std::string& name);
// Writes the input of a rank: small integers that differ by rank and index.
void fill(Span input, int rank);
// Throws Errc::internal naming the first wrong element.
void verify(const Operation& operation, ConstSpan output, int rank, int ranks);

}  // namespace ddprun::bench
