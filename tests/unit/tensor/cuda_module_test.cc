// What is said where CUDA devices cannot be used.
#include <cstdlib>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/tensor.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

void make_tensor() {
  Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, 0});
}

}  // namespace

TEST_CASE("without a module a CUDA device is refused, with the places that were looked at") {
  ::unsetenv("DDPRUN_CUDA_EMULATOR");
  ::setenv("DDPRUN_CUDA_MODULE", "/nowhere/libddprun_cuda.so", 1);
  CHECK_THROWS_WITH(make_tensor(), Catch::Contains("no CUDA module") && Catch::Contains("/nowhere/libddprun_cuda.so"));
  try {
    make_tensor();
    FAIL("a tensor was made");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
  }
}

TEST_CASE("a module of another interface version is refused, with both versions") {
  ::setenv("DDPRUN_CUDA_MODULE", OTHER_CUDA_MODULE, 1);
  CHECK_THROWS_WITH(make_tensor(), Catch::Contains(OTHER_CUDA_MODULE) && Catch::Contains("interface version 0"));
}
