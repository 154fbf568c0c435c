#pragma once

#include <memory>
#include <string>

#include "tests/bench/collectives/subject.h"

namespace ddprun::bench {

// Gloo's own allreduce of float32, without ddprun: "ring", "bcube", or "halving_doubling", which polls its connections.
// Every rank calls it.
std::unique_ptr<Subject> plain_gloo(const std::string& algorithm, SharedMapping& mapping, int rank);

}  // namespace ddprun::bench
