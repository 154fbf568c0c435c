#pragma once

#include <thread>

namespace ddprun {

// oneDNN generates the code of its matrix products in the first one of a process, some 10 ms on a processor with AVX2,
// 2 ms with AVX-512. The returned thread does so beside all else that a program begins with; a product meanwhile waits
// for it.
std::jthread generate_product_code();

}  // namespace ddprun
