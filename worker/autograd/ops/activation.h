#pragma once

#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun {

class Generator;

Variable relu(const Variable& input);
Variable tanh(const Variable& input);
Variable sigmoid(const Variable& input);
// x sigmoid(x), also known as swish.
Variable silu(const Variable& input);
// x P(X <= x) for a normal X, exactly and with the approximation by tanh that GPT-2 uses.
Variable gelu(const Variable& input);
Variable gelu_tanh(const Variable& input);

// Sets elements to zero with the given probability and scales the rest by 1 / (1 - probability).
Variable dropout(const Variable& input, double probability, Generator& generator);
// Dropout with random numbers that belong to each row of the first dimension: row i draws from
// Generator(seed, streams[i]), from its number first on. A sample's numbers so depend on neither batch nor rank, and a
// range of a row's elements gets the numbers that it has within the row.
Variable dropout(const Variable& input, double probability, std::uint64_t seed, std::vector<std::uint64_t> streams,
                 std::uint64_t first = 0);

}  // namespace ddprun
