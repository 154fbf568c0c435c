// The emulated cuBLASLt refuses what the real one does, by its numbers.
#include <cublasLt.h>

#include "worker/tensor/cuda/module/device.h"
#include "tests/unit/cuda/library_operands.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;

namespace {

// A valid product (4, 3) times (3, 5), which tests make invalid.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, d{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  DeviceContext& device = context_of(0);
  DeviceTensor a_memory{device, random_tensor({3, 4}, 1, DType::float32)};
  DeviceTensor b_memory{device, random_tensor({5, 3}, 2, DType::float32)};
  DeviceTensor d_memory{device, {5, 4}, DType::float32};
  Scratch workspace{device.memory, 4096};
  float alpha = 1, beta = 0;

  Product() {
    cublasLtCreate(&handle);
    cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutInit(&a, CUDA_R_32F, 4, 3, 4);
    cublasLtMatrixLayoutInit(&b, CUDA_R_32F, 3, 5, 3);
    cublasLtMatrixLayoutInit(&d, CUDA_R_32F, 4, 5, 4);
    cublasLtMatmulPreferenceInit(&preference);
    const std::uint64_t bytes = 4096;
    cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
  }
  ~Product() { cublasLtDestroy(handle); }

  cublasStatus_t choose(cublasLtMatmulHeuristicResult_t& result) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &d, &d, &preference, 1, &result, &found);
  }
  cublasStatus_t run(const cublasLtMatmulAlgo_t* algorithm, std::size_t workspace_bytes) {
    return cublasLtMatmul(handle, &operation, &alpha, a_memory.view().data, &a, b_memory.view().data, &b, &beta,
                          d_memory.view().data, &d, d_memory.view().data, &d, algorithm, workspace.data(),
                          workspace_bytes, device.stream());
  }
  // Returns the status that both functions give for the product as it is now.
  cublasStatus_t status() {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t chosen = choose(result), ran = run(nullptr, 0);
    CHECK(chosen == ran);
    return ran;
  }
  template <class Value>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    return cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value));
  }
};

}  // namespace

TEST_CASE("the emulated cuBLASLt takes a product that is right") {
  Product product;
  CHECK(product.status() == CUBLAS_STATUS_SUCCESS);
  CHECK(difference(product.d_memory, [&] {
          Tensor out = Tensor::zeros({5, 4}, DType::float64);
          kernels::of(out).matmul(wide(product.b_memory.to_host()), wide(product.a_memory.to_host()), out, {});
          return out;
        }()) < tolerance(DType::float32));
}

TEST_CASE("the emulated cuBLASLt refuses matrices that do not fit") {
  Product product;
  cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 2, 5, 2);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 3, 5, 2);  // columns overlap
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 3, 0, 3);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 3, 5, 3);
  const std::int32_t batch = 2;
  cublasLtMatrixLayoutSetAttribute(&product.b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("the emulated cuBLASLt refuses types that do not go together") {
  Product product;
  cublasLtMatrixLayoutInit(&product.a, CUDA_R_16F, 4, 3, 4);
  CHECK(product.status() == CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatrixLayoutInit(&product.a, CUDA_R_32F, 4, 3, 4);
  cublasLtMatmulDescInit(&product.operation, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  CHECK(product.status() == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("the emulated cuBLASLt refuses attributes of another size, and a bias that is none") {
  Product product;
  CHECK(product.set(CUBLASLT_MATMUL_DESC_TRANSA, std::int64_t{1}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS}) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
  const auto* unaligned = static_cast<const float*>(product.a_memory.view().data) + 1;
  CHECK(product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, unaligned) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("the emulated cuBLASLt refuses the epilogues of a GELU that the real one refuses") {
  Product product;
  const auto as_16_bits = [](cublasLtMatrixLayoutOpaque_t& layout, std::uint64_t rows, std::uint64_t columns) {
    cublasLtMatrixLayoutInit(&layout, CUDA_R_16BF, rows, columns, static_cast<std::int64_t>(rows));
  };
  const std::uint32_t gelu = CUBLASLT_EPILOGUE_GELU_AUX, slope = CUBLASLT_EPILOGUE_DGELU;
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, gelu) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_NOT_SUPPORTED);  // it is of float32
  as_16_bits(product.a, 4, 3);
  as_16_bits(product.b, 3, 5);
  as_16_bits(product.d, 4, 5);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);  // it has no matrix
  const DeviceTensor matrix(product.device, {5, 8}, DType::bfloat16);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix.view().data) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{4}) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);  // its columns are no multiple of 8
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{8}) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_SUCCESS);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, slope) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("the emulated cuBLASLt refuses sums without a vector") {
  Product product;
  const std::uint32_t sums = GENERATE(CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, sums) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_INVALID_VALUE);
  const DeviceTensor vector(product.device, {5}, DType::float32);
  CHECK(product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.view().data) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.status() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("the emulated cuBLASLt holds a caller to what its algorithm was chosen for") {
  Product product;
  cublasLtMatmulHeuristicResult_t result{};
  REQUIRE(product.choose(result) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(result.workspaceSize > 0);
  CHECK(product.run(&result.algo, result.workspaceSize) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.run(&result.algo, result.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  const cublasLtMatmulAlgo_t none{};
  CHECK(product.run(&none, result.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  const DeviceTensor many(product.device, {64}, DType::float32);
  CHECK(cublasLtMatmul(product.handle, &product.operation, &product.alpha,
                       static_cast<const float*>(many.view().data) + 1, &product.a, product.b_memory.view().data,
                       &product.b, &product.beta, product.d_memory.view().data, &product.d,
                       product.d_memory.view().data, &product.d, &result.algo, product.workspace.data(),
                       product.workspace.bytes(), product.device.stream()) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmul(nullptr, &product.operation, &product.alpha, nullptr, &product.a, nullptr, &product.b,
                       &product.beta, nullptr, &product.d, nullptr, &product.d, nullptr, nullptr, 0,
                       product.device.stream()) == CUBLAS_STATUS_NOT_INITIALIZED);
}
