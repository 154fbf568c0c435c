#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/contract/group_contract.h"

// The results of every reduction of floats of 16 and 32 bits, and of the operations that move parts, to be compared bit
// by bit.
namespace ddprun::contract {

using Bytes = std::vector<std::byte>;
using Results = std::vector<Bytes>;  // of the operations, one after the other

// An operation whose memory is known when it begins.
using StartOperation = std::function<WorkPtr(ConstSpan input, Span output)>;
// Executes an operation on memory with these values, and returns what the output's have become.
using Execute = std::function<Bytes(const StartOperation&, DType dtype, const Bytes& input, Bytes output)>;

// On memory of the host.
Bytes on_host(const StartOperation& start, DType dtype, const Bytes& input, Bytes output);

// Returns what operations on random values give, which are the same at each call. Their sums depend on the order of
// the summands.
std::vector<Results> results_of_ranks(Groups& groups, const Execute& execute);

// "rank 1, operation 3", or nothing.
std::string first_difference(const std::vector<Results>& expected, const std::vector<Results>& found);

}  // namespace ddprun::contract
