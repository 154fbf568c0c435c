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
using Results = std::vector<Bytes>;  // results of successive operations

// An operation whose memory is known when it begins.
using StartOperation = std::function<WorkPtr(ConstSpan input, Span output)>;
// Executes an operation on memory with these values, and returns the output's values afterwards.
using Execute = std::function<Bytes(const StartOperation&, DType dtype, const Bytes& input, Bytes output)>;

// Executes it on memory of the host.
Bytes on_host(const StartOperation& start, DType dtype, const Bytes& input, Bytes output);

// Returns the results of operations on random values, which are the same at each call. Their sums depend on the order
// of the summands.
std::vector<Results> results_of_ranks(Groups& groups, const Execute& execute);

// Returns "rank 1, operation 3", or empty text.
std::string first_difference(const std::vector<Results>& expected, const std::vector<Results>& found);

}  // namespace ddprun::contract
