#include "worker/tensor/cuda/module/product_plan.h"

#include "common/error.h"

namespace ddprun::cuda {
namespace {

// The size that NVIDIA recommends for sm_90.
constexpr std::uint64_t most_workspace = 32 << 20;

cudaDataType data_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDA_R_64F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    case DType::float16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(const Product& product) {
  if (product.in == DType::float64) return CUBLAS_COMPUTE_64F;
  return product.in == DType::float32 && product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

template <class Value>
void set(ProductPlan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value, const LibraryCall& call) {
  check(cublasLtMatmulDescSetAttribute(&plan.operation, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute", call);
}

// Describes a matrix of rows and columns as we see it, in `count` copies.
void describe_matrix(cublasLtMatrixLayoutOpaque_t& layout, DType dtype, std::int64_t rows, std::int64_t columns,
                     std::int64_t count, const LibraryCall& call) {
  check(cublasLtMatrixLayoutInit(&layout, data_type(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
        "cublasLtMatrixLayoutInit", call);
  if (count == 1) return;
  const auto set_layout = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value)),
          "cublasLtMatrixLayoutSetAttribute", call);
  };
  if (count > std::int64_t{INT32_MAX})
    throw make_error(Errc::unsupported, "{} of {} matrices at once is not supported on {}", call.operation, count,
                     call.device.name());
  set_layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
  set_layout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_bias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::sums_of_a:
      return CUBLASLT_EPILOGUE_BGRADB;  // a is cuBLASLt's second matrix
    case Epilogue::sums_of_b:
      return CUBLASLT_EPILOGUE_BGRADA;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool has_matrix(Epilogue epilogue) {
  return epilogue == Epilogue::gelu || epilogue == Epilogue::gelu_bias || epilogue == Epilogue::gelu_gradient;
}
bool has_vector(Epilogue epilogue) {
  return epilogue != Epilogue::none && epilogue != Epilogue::gelu && epilogue != Epilogue::gelu_gradient;
}

void describe(ProductPlan& plan, const Product& p, const EpilogueMemory& memory, const LibraryCall& call) {
  check(cublasLtMatmulDescInit(&plan.operation, compute_type(p), p.in == DType::float64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescInit", call);
  const auto transposition = [](bool transposes) {
    return static_cast<std::int32_t>(transposes ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(plan, CUBLASLT_MATMUL_DESC_TRANSA, transposition(p.transpose_b), call);
  set(plan, CUBLASLT_MATMUL_DESC_TRANSB, transposition(p.transpose_a), call);
  set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue_of(p.epilogue)), call);
  if (has_matrix(p.epilogue)) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n, call);
  set_memory(plan, p, memory, call);
  const bool a = p.transpose_a, b = p.transpose_b;
  describe_matrix(plan.first, p.in, b ? p.n : p.k, b ? p.k : p.n, p.count, call);
  describe_matrix(plan.second, p.in, a ? p.k : p.m, a ? p.m : p.k, p.count, call);
  describe_matrix(plan.out, p.out, p.m, p.n, p.count, call);
}

cublasLtMatmulPreferenceOpaque_t preference_of(const Product& product, const LibraryCall& call) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit", call);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute", call);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace);
  // Parts of a sum that is divided among blocks stay float32 until they are one.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.out_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.out_alignment);
  return preference;
}

}  // namespace

ProductPlan make_plan(cublasLtHandle_t library, const Product& product, const EpilogueMemory& memory,
                      const LibraryCall& call) {
  ProductPlan plan;
  describe(plan, product, memory, call);
  cublasLtMatmulPreferenceOpaque_t preference = preference_of(product, call);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library, &plan.operation, &plan.first, &plan.second,
                                                               &plan.out, &plan.out, &preference, 1, &best, &found);
  const bool has_none = status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0);
  if (product.epilogue != Epilogue::none && has_none) return plan;
  check(status, "cublasLtMatmulAlgoGetHeuristic", call);
  if (found == 0)
    throw make_error(Errc::unsupported, "{} of {} is not supported on {}: cuBLASLt has no algorithm for ({}, {}, {})",
                     call.operation, name_of(call.dtype), call.device.name(), product.m, product.n, product.k);
  check(best.state, "cublasLtMatmulAlgoGetHeuristic", call);
  plan.algorithm = best.algo;
  plan.workspace_bytes = best.workspaceSize;
  plan.exists = true;
  return plan;
}

void set_memory(ProductPlan& plan, const Product& product, const EpilogueMemory& memory, const LibraryCall& call) {
  if (has_vector(product.epilogue)) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.vector, call);
  if (has_matrix(product.epilogue)) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.matrix, call);
}

}  // namespace ddprun::cuda
