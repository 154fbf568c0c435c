#include "ddprun/worker/tensor/onednn/product_code.h"

#include <array>

#include <dnnl.h>

#include "ddprun/worker/tensor/onednn/threads.h"

namespace ddprun {

std::jthread generate_product_code() {
  return std::jthread([] {
    onednn::set_threads(1);  // of this thread: no team for one product
    constexpr std::size_t size = 8;
    const std::array<float, size * size> operand{};
    std::array<float, size * size> result;
    dnnl_sgemm('N', 'N', size, size, size, 1.0F, operand.data(), size, operand.data(), size, 0.0F, result.data(), size);
  });
}

}  // namespace ddprun
