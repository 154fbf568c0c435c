#pragma once

#include <cstdint>

#include "worker/tensor/random.h"

// Initial values of parameters, drawn from a generator.
namespace ddprun::nn {

// Uniform within 1 / sqrt(fan_in): PyTorch's default of Linear and Conv2d, its Kaiming-uniform with a = sqrt(5).
Tensor uniform_by_fan_in(const Shape& shape, std::int64_t fan_in, Generator& generator);
// Uniform within sqrt(6 / (fan_in + fan_out)), for a shape (fan_out, fan_in) (Glorot and Bengio 2010).
Tensor xavier_uniform(const Shape& shape, Generator& generator);
// Normal with variance 2 / fan_out (He et al. 2015), which keeps the size of gradients through convolutions and relus.
Tensor kaiming_normal(const Shape& shape, std::int64_t fan_out, Generator& generator);
// Normal with mean 0.
Tensor normal(const Shape& shape, double deviation, Generator& generator);

}  // namespace ddprun::nn
