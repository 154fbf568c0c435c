#pragma once

#include <cstdint>
#include <vector>

#include "worker/nn/sample_part.h"
#include "worker/tensor/tensor.h"

// The division of the positions of a sequence among N ranks: of 2 N equal pieces rank r has r and 2 N - 1 - r, in this
// order. With causality all ranks then have equally many pairs of a query and a key that it sees (zigzag order:
// Megatron-LM's context parallelism; Grattafiori et al., "The Llama 3 Herd of Models", 2024). Pure functions.
namespace ddprun {

// The numbers of a rank's two pieces, by their place in the sequence.
struct Pieces {
  int first, second;
  friend bool operator==(const Pieces&, const Pieces&) = default;
};
Pieces pieces_of(int rank, int ranks);

// Returns a rank's positions, or the elements of them, as ranges of the whole sequence.
nn::SamplePart own_part(int rank, int ranks);

// Returns the part of the weights of attention that a rank has: its queries by all keys, of each of so many heads.
nn::SamplePart own_weights(std::int64_t heads, int rank, int ranks);

// A range of a rank's positions, in its order.
struct PositionRange {
  std::int64_t start, length;
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};
// The part of another rank's positions that a rank's queries see, where each rank has 2 piece of them: each of these
// queries sees all of these keys, and nothing else. REQUIRES: two ranks that differ.
struct SeenPositions {
  PositionRange queries, keys;
};
SeenPositions seen_positions(int rank, int owner, std::int64_t piece);

// Returns a rank's positions of a dimension that has all of them, in a new tensor. Throws Errc::usage for a number of
// positions that 2 ranks does not divide.
Tensor own_positions(const Tensor& all, std::int64_t dim, int rank, int ranks);
// The inverse: writes a rank's positions to their places.
void put_positions(const Tensor& own, std::int64_t dim, int rank, int ranks, const Tensor& all);
// Returns a rank's positions of so many, in its order.
std::vector<std::int64_t> numbers_of_positions(std::int64_t positions, int rank, int ranks);

}  // namespace ddprun
