// The messages where CUDA devices cannot be used.
#include "worker/cuda/cuda_module.h"

#include <cstdlib>

#include "common/error.h"
#include "worker/tensor/tensor.h"
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

TEST_CASE("a module whose library is not found says which one, and where to look") {
  ::setenv("DDPRUN_CUDA_MODULE", CUDA_MODULE_ALONE, 1);
  CHECK_THROWS_WITH(make_tensor(), Catch::Contains(CUDA_MODULE_ALONE) &&
                                       Catch::Contains("libcudnn_that_is_absent.so: cannot open shared object file") &&
                                       Catch::Contains("cuDNN of the version that the module was built with is not "
                                                       "installed, or LD_LIBRARY_PATH does not name its folder"));
}

TEST_CASE("a module whose library lacks a function says that its version is another") {
  ::setenv("DDPRUN_CUDA_MODULE", CUDA_MODULE_OF_NEWER_LIBRARY, 1);
  CHECK_THROWS_WITH(make_tensor(), Catch::Contains("undefined symbol: cudnnFunctionOfTomorrow") &&
                                       Catch::Contains("cuDNN here is of another version than the module was built"));
}

TEST_CASE("a module of another interface version is refused, with both versions") {
  ::setenv("DDPRUN_CUDA_MODULE", OTHER_CUDA_MODULE, 1);
  CHECK_THROWS_WITH(make_tensor(), Catch::Contains(OTHER_CUDA_MODULE) && Catch::Contains("interface version 0"));
}

TEST_CASE("a function that a library of the module lacks is named with the library") {
  ::setenv("DDPRUN_CUDA_MODULE", OTHER_CUDA_MODULE, 1);
  CHECK_THROWS_WITH(CudaModule::get().symbol<void()>("ncclCommShrink"),
                    Catch::Contains("has no ncclCommShrink; NCCL here is of another version than this program needs"));
}
