#include "worker/tensor/onednn/product_code.h"

#include <array>
#include <cstdint>

#include "worker/tensor/onednn/matmul.h"
#include "worker/tensor/onednn/threads.h"

namespace ddprun {

std::jthread generate_product_code() {
  return std::jthread([] {
    onednn::set_threads(1);  // for this thread: one product needs no team
    constexpr std::int64_t size = 8;
    const std::array<float, size * size> operand{};
    std::array<float, size * size> result;
    onednn::multiply({size, size, size, size, size, size, {}}, operand.data(), operand.data(), result.data());
  });
}

}  // namespace ddprun
