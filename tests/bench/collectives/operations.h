#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun::bench {

// The memory of one call: what a rank gives and what it gets; the same where an operation works in place.
struct Memory {
  Span input, output;
};

// An operation on buffers of so many elements in all: what a rank begins or ends with, whichever is more.
struct Operation {
  const char* name;
  bool part_in, part_out;  // a rank gives, gets one of as many parts as there are ranks
  bool in_place;
  double (*bus_factor)(double ranks);  // nccl-tests': from the bandwidth of the algorithm to that of the links
  WorkPtr (*start)(ProcessGroup& group, const Memory& memory, OpOptions options);
  // Element i of what rank must get, when element j of rank r's input is value(r, j).
  double (*expected)(int rank, std::size_t i, int ranks, std::size_t part, double (*value)(int r, std::size_t j));
};

// Throws Errc::usage naming those there are.
const Operation& operation_named(const std::string& name);
std::string operation_names();

DType dtype_named(const std::string& name);
// Writes the input of a rank: small whole numbers that differ by rank and place.
void fill(Span input, int rank);
// Throws Errc::internal naming the first element that is not what it must be.
void verify(const Operation& operation, ConstSpan output, int rank, int ranks);

}  // namespace ddprun::bench
