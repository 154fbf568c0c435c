#include <algorithm>
#include <array>
#include <cmath>
#include <cublasLt.h>
#include <optional>
#include <type_traits>

#include "worker/cuda/emulator/library_memory.h"

// cuBLASLt by plain loops. Matrices are stored by columns.

struct cublasLtContext {
  int device;
};

namespace ddprun::cuda::emulator {
namespace {

// The contents of the descriptors, which callers hold as numbers.
struct Layout {
  cudaDataType type;
  std::int32_t order;
  std::uint64_t rows, columns;
  std::int64_t leading;  // elements from a column to the next one
  std::int64_t stride;   // elements from a matrix to the next one
  std::int32_t count;
};
struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  std::int32_t transposes_a, transposes_b;
  std::uint32_t epilogue;
  std::int32_t bias_type;  // -1 if it is the result's
  void* bias;
  void* matrix;  // the auxiliary one of a GELU, of the result's type
  std::int64_t matrix_leading;
};
struct Preference {
  std::uint64_t workspace;
  std::uint32_t reduction_schemes;
  std::array<std::uint32_t, 4> alignments;
};
struct Algorithm {
  std::uint64_t tag;
  std::uint64_t workspace;
  std::array<std::uint32_t, 4> alignments;
  cudaDataType in, out;
};
constexpr std::uint64_t algorithm_tag = 0x6d61746d756c;

template <class Content, class Opaque>
Content content_of(const Opaque* opaque) {
  static_assert(sizeof(Content) <= sizeof(Opaque) && std::is_trivially_copyable_v<Content>);
  Content content;
  std::memcpy(&content, opaque, sizeof(content));
  return content;
}
template <class Content, class Opaque>
void keep(const Content& content, Opaque* opaque) {
  *opaque = {};
  std::memcpy(opaque, &content, sizeof(content));
}

// Returns an attribute's value, if it has the size that it must have.
template <class Value>
cublasStatus_t assign(Value& value, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, sizeof(Value));
  return CUBLAS_STATUS_SUCCESS;
}

std::optional<Element> element_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return Element::float32;
    case CUDA_R_64F:
      return Element::float64;
    case CUDA_R_16F:
      return Element::float16;
    case CUDA_R_16BF:
      return Element::bfloat16;
  }
  return std::nullopt;
}

struct Problem {
  Description operation;
  Layout a, b, c, d;
  std::uint64_t rows() const { return d.rows; }
  std::uint64_t columns() const { return d.columns; }
  std::uint64_t depth() const { return operation.transposes_a != 0 ? a.rows : a.columns; }
};

bool is_layout(const Layout& layout) {
  return layout.order == 0 && layout.rows > 0 && layout.columns > 0 && layout.count > 0 &&
         layout.leading >= static_cast<std::int64_t>(layout.rows);
}

std::int64_t elements_of(const Layout& layout) {
  return static_cast<std::int64_t>(layout.columns - 1) * layout.leading + static_cast<std::int64_t>(layout.rows);
}
std::size_t bytes_of(const Layout& layout) {
  const std::int64_t elements = elements_of(layout) + (layout.count - 1) * layout.stride;
  return static_cast<std::size_t>(elements) * size_of(*element_of(layout.type));
}

bool shapes_fit(const Problem& p) {
  const bool a = p.operation.transposes_a != 0, b = p.operation.transposes_b != 0;
  return (a ? p.a.columns : p.a.rows) == p.d.rows && (b ? p.b.columns : p.b.rows) == p.depth() &&
         (b ? p.b.rows : p.b.columns) == p.d.columns && p.c.rows == p.d.rows && p.c.columns == p.d.columns &&
         p.a.count == p.d.count && p.b.count == p.d.count && p.c.count == p.d.count &&
         (p.d.count == 1 || p.d.stride >= elements_of(p.d));
}

// Returns whether the types are in the table in the documentation of cublasLtMatmul().
bool types_fit(const Problem& p) {
  const Description& o = p.operation;
  if (p.a.type != p.b.type || p.c.type != p.d.type || o.scale != (p.a.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F))
    return false;
  switch (o.compute) {
    case CUBLAS_COMPUTE_64F:
      return p.a.type == CUDA_R_64F && p.d.type == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return p.a.type == CUDA_R_32F && p.d.type == CUDA_R_32F;
    default:
      return p.a.type != CUDA_R_64F && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
  }
}

bool adds_bias(const Description& o) {
  return o.epilogue == CUBLASLT_EPILOGUE_BIAS || o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool sums_columns(const Description& o) {
  return o.epilogue == CUBLASLT_EPILOGUE_BGRADA || o.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool applies_gelu(const Description& o) {
  return o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_matrix(const Description& o) {
  return applies_gelu(o) || o.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

// Returns the number of elements of the epilogue's vector.
std::uint64_t vector_size(const Problem& p) {
  if (!adds_bias(p.operation) && !sums_columns(p.operation)) return 0;
  return p.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.columns() : p.rows();
}

bool is_whole(const void* memory) {
  return memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % 16 == 0;
}

// Epilogues with a GELU are only of 16 bits, so that tests see callers do without.
cublasStatus_t check_epilogue(const Problem& p) {
  const Description& o = p.operation;
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if ((vector_size(p) == 0 && !has_matrix(o)) || p.d.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.bias_type != -1 && o.bias_type != p.d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (vector_size(p) > 0 && !is_whole(o.bias)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_matrix(o)) return CUBLAS_STATUS_SUCCESS;
  if (p.d.type == CUDA_R_32F || p.d.count > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool fits =
      is_whole(o.matrix) && o.matrix_leading % 8 == 0 && o.matrix_leading >= static_cast<std::int64_t>(p.rows());
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t check(const Machine& machine, const Problem& p) {
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d})
    if (!is_layout(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!shapes_fit(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_fit(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.a.type == CUDA_R_16BF && machine.settings().major < 8) return CUBLAS_STATUS_NOT_SUPPORTED;
  return check_epilogue(p);
}

std::optional<Problem> problem_of(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  if (operation == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) return std::nullopt;
  return Problem{content_of<Description>(operation), content_of<Layout>(a), content_of<Layout>(b),
                 content_of<Layout>(c), content_of<Layout>(d)};
}

bool is_aligned(const void* memory, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

// Returns what is left of a float32 in the 19 bits of TF32.
float rounded_to_tf32(float value) {
  return bits_as<float>((bits_as<std::uint32_t>(value) + 0x1000) & ~std::uint32_t{0x1fff});
}

const std::byte* at(const void* base, const Layout& layout, std::int32_t index) {
  return static_cast<const std::byte*>(base) +
         index * layout.stride * static_cast<std::int64_t>(size_of(*element_of(layout.type)));
}

// Returns op(matrix), by columns without gaps.
template <class T>
std::vector<T> packed(const Layout& layout, const void* memory, bool transposes, bool tf32) {
  const std::vector<T> stored =
      read<T>(*element_of(layout.type), memory, static_cast<std::size_t>(elements_of(layout)));
  const std::size_t rows = transposes ? layout.columns : layout.rows,
                    columns = transposes ? layout.rows : layout.columns;
  const auto leading = static_cast<std::size_t>(layout.leading);
  std::vector<T> result(rows * columns);
  for (std::size_t column = 0; column < columns; ++column)
    for (std::size_t row = 0; row < rows; ++row)
      result[column * rows + row] = transposes ? stored[row * leading + column] : stored[column * leading + row];
  if constexpr (std::is_same_v<T, float>)
    if (tf32) std::transform(result.begin(), result.end(), result.begin(), rounded_to_tf32);
  return result;
}

// out[0, columns)[rows] += a (rows, depth) times `columns` columns of b (depth), all packed. The sums go over the depth
// from first to last.
template <class T, int columns>
void multiply_columns(std::size_t rows, std::size_t depth, const T* a, const T* b, T* __restrict out) {
  for (std::size_t k = 0; k < depth; ++k) {
    const T* __restrict column = a + k * rows;
    for (int j = 0; j < columns; ++j) {
      const T factor = b[static_cast<std::size_t>(j) * depth + k];
      T* __restrict sums = out + static_cast<std::size_t>(j) * rows;
      for (std::size_t i = 0; i < rows; ++i) sums[i] += column[i] * factor;
    }
  }
}

template <class T>
std::vector<T> multiply(std::size_t rows, std::size_t columns, std::size_t depth, const T* a, const T* b) {
  constexpr int together = 4;
  std::vector<T> out(rows * columns, T(0));
  std::size_t j = 0;
  for (; j + together <= columns; j += together)
    multiply_columns<T, together>(rows, depth, a, b + j * depth, out.data() + j * rows);
  for (; j < columns; ++j) multiply_columns<T, 1>(rows, depth, a, b + j * depth, out.data() + j * rows);
  return out;
}

struct Operands {
  const void *a, *b, *c;
  void* d;
};

template <class T>
void add_bias(const Problem& p, std::vector<T>& product) {
  if (!adds_bias(p.operation)) return;
  const std::vector<T> bias = read<T>(*element_of(p.d.type), p.operation.bias, p.rows());
  for (std::size_t i = 0; i < product.size(); ++i) product[i] += bias[i % p.rows()];
}

// Sums over the depth: rows of op(a) (rows, depth), or columns of op(b) (depth, columns).
template <class T>
void sum_columns(const Problem& p, const std::vector<T>& a, const std::vector<T>& b) {
  if (!sums_columns(p.operation)) return;
  const bool of_a = p.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  std::vector<T> sums(vector_size(p), T(0));
  for (std::size_t k = 0; k < p.depth(); ++k)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_a ? a[k * p.rows() + i] : b[i * p.depth() + k];
  write<T>(*element_of(p.d.type), sums.data(), sums.size(), 1, 0, p.operation.bias);
}

constexpr double gelu_factor = 0.7978845608028654, gelu_cube = 0.044715;

template <class T>
T gelu(T x) {
  return x * T(0.5) * (1 + std::tanh(T(gelu_factor) * (x + T(gelu_cube) * x * x * x)));
}
template <class T>
T gelu_slope(T x) {
  const T tanh = std::tanh(T(gelu_factor) * (x + T(gelu_cube) * x * x * x));
  return T(0.5) * (1 + tanh) + T(0.5) * x * (1 - tanh * tanh) * T(gelu_factor) * (1 + 3 * T(gelu_cube) * x * x);
}

// Takes the product's GELU, and copies the product to the matrix; or multiplies it by the slope at the matrix.
template <class T>
void apply_gelu(const Problem& p, std::vector<T>& product) {
  if (!has_matrix(p.operation)) return;
  const Element type = *element_of(p.d.type);
  for (std::size_t column = 0; column < p.columns(); ++column) {
    auto* const at = static_cast<std::byte*>(p.operation.matrix) +
                     column * static_cast<std::size_t>(p.operation.matrix_leading) * size_of(type);
    T* const values = product.data() + column * p.rows();
    if (applies_gelu(p.operation)) {
      write<T>(type, values, p.rows(), 1, 0, at);
      std::transform(values, values + p.rows(), values, gelu<T>);
    } else {
      const std::vector<T> x = read<T>(type, at, p.rows());
      for (std::size_t row = 0; row < p.rows(); ++row) values[row] *= gelu_slope(x[row]);
    }
  }
}

// Computes d = alpha op(a) op(b) + beta c and the epilogue, rounded once.
template <class T>
void compute_one(const Problem& p, const Operands& o, std::int32_t index, T alpha, T beta) {
  const bool tf32 = p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto a = packed<T>(p.a, at(o.a, p.a, index), p.operation.transposes_a != 0, tf32);
  const auto b = packed<T>(p.b, at(o.b, p.b, index), p.operation.transposes_b != 0, tf32);
  auto product = multiply<T>(p.rows(), p.columns(), p.depth(), a.data(), b.data());
  for (T& value : product) value *= alpha;
  if (beta != 0) {
    const auto before = packed<T>(p.c, at(o.c, p.c, index), false, false);
    for (std::size_t i = 0; i < product.size(); ++i) product[i] += beta * before[i];
  }
  add_bias(p, product);
  sum_columns(p, a, b);
  apply_gelu(p, product);
  auto* out = const_cast<std::byte*>(at(o.d, p.d, index));
  const std::size_t column_bytes = static_cast<std::size_t>(p.d.leading) * size_of(*element_of(p.d.type));
  for (std::size_t column = 0; column < p.columns(); ++column)
    write<T>(*element_of(p.d.type), product.data() + column * p.rows(), p.rows(), 1, 0, out + column * column_bytes);
}

template <class T>
StreamOperation operation_of(Device& device, const Problem& p, const Operands& o, const void* alpha, const void* beta,
                             void* workspace, std::size_t workspace_bytes) {
  T factor, factor_of_c;
  std::memcpy(&factor, alpha, sizeof(T));
  std::memcpy(&factor_of_c, beta, sizeof(T));
  std::vector<Region> regions{
      {o.a, bytes_of(p.a)}, {o.b, bytes_of(p.b)}, {o.d, bytes_of(p.d)}, {workspace, workspace_bytes}};
  if (factor_of_c != 0) regions.push_back({o.c, bytes_of(p.c)});
  const std::size_t element = size_of(*element_of(p.d.type));
  if (vector_size(p) > 0) regions.push_back({p.operation.bias, vector_size(p) * element});
  if (has_matrix(p.operation)) {
    const std::size_t elements = (p.columns() - 1) * static_cast<std::size_t>(p.operation.matrix_leading) + p.rows();
    regions.push_back({p.operation.matrix, elements * element});
  }
  return [=, &device] {
    if (!are_allocated(device, regions)) return true;
    spoil(workspace, workspace_bytes);
    for (std::int32_t i = 0; i < p.d.count; ++i) compute_one<T>(p, o, i, factor, factor_of_c);
    return true;
  };
}

// Returns whether the algorithm is one for this problem, and what it was promised holds.
bool suits(const Algorithm& algorithm, const Problem& p, const Operands& o, std::size_t workspace_bytes) {
  return algorithm.tag == algorithm_tag && algorithm.in == p.a.type && algorithm.out == p.d.type &&
         algorithm.workspace <= workspace_bytes && is_aligned(o.a, algorithm.alignments[0]) &&
         is_aligned(o.b, algorithm.alignments[1]) && is_aligned(o.c, algorithm.alignments[2]) &&
         is_aligned(o.d, algorithm.alignments[3]);
}

}  // namespace
}  // namespace ddprun::cuda::emulator

namespace emulator = ddprun::cuda::emulator;
using emulator::Call;

size_t cublasLtGetVersion() {
  return static_cast<size_t>(emulator::Machine::get().settings().cublaslt.value_or(CUBLAS_VERSION));
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Call call("cublasLtCreate");
  if (call.fails()) return call.failure(CUBLAS_STATUS_NOT_INITIALIZED);
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext{call.machine().current_device()};
  ++call.machine().library_objects();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const Call call("cublasLtDestroy");
  if (handle != nullptr) --call.machine().library_objects();
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading) {
  const Call call("cublasLtMatrixLayoutInit");
  if (call.fails() || layout == nullptr || size < sizeof(*layout)) return call.failure(CUBLAS_STATUS_ALLOC_FAILED);
  if (!emulator::element_of(type)) return CUBLAS_STATUS_INVALID_VALUE;
  keep(emulator::Layout{type, 0, rows, columns, leading, 0, 1}, layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  const Call call("cublasLtMatrixLayoutSetAttribute");
  if (call.fails() || layout == nullptr) return call.failure(CUBLAS_STATUS_INVALID_VALUE);
  auto content = emulator::content_of<emulator::Layout>(layout);
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) status = emulator::assign(content.count, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) status = emulator::assign(content.stride, value, bytes);
  keep(content, layout);
  return status;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size, cublasComputeType_t compute,
                                               cudaDataType scale) {
  const Call call("cublasLtMatmulDescInit");
  if (call.fails() || operation == nullptr || size < sizeof(*operation))
    return call.failure(CUBLAS_STATUS_ALLOC_FAILED);
  keep(emulator::Description{compute, scale, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr, nullptr, 0}, operation);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const Call call("cublasLtMatmulDescSetAttribute");
  if (call.fails() || operation == nullptr) return call.failure(CUBLAS_STATUS_INVALID_VALUE);
  auto content = emulator::content_of<emulator::Description>(operation);
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      status = emulator::assign(content.transposes_a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      status = emulator::assign(content.transposes_b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      status = emulator::assign(content.epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      status = emulator::assign(content.bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      status = emulator::assign(content.matrix, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      status = emulator::assign(content.matrix_leading, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      status = emulator::assign(content.bias_type, value, bytes);
      break;
  }
  keep(content, operation);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  const Call call("cublasLtMatmulPreferenceInit");
  if (call.fails() || preference == nullptr || size < sizeof(*preference))
    return call.failure(CUBLAS_STATUS_ALLOC_FAILED);
  keep(emulator::Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}}, preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  const Call call("cublasLtMatmulPreferenceSetAttribute");
  if (call.fails() || preference == nullptr) return call.failure(CUBLAS_STATUS_INVALID_VALUE);
  auto content = emulator::content_of<emulator::Preference>(preference);
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      status = emulator::assign(content.workspace, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      status = emulator::assign(content.reduction_schemes, value, bytes);
      break;
    default:
      status = emulator::assign(
          content.alignments[static_cast<std::size_t>(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)], value,
          bytes);
  }
  keep(content, preference);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  const Call call("cublasLtMatmulAlgoGetHeuristic");
  if (call.fails()) return call.failure(CUBLAS_STATUS_INTERNAL_ERROR);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto problem = emulator::problem_of(operation, a, b, c, d);
  if (!problem || preference == nullptr || requested < 1 || results == nullptr || returned == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  if (const cublasStatus_t status = check(call.machine(), *problem); status != CUBLAS_STATUS_SUCCESS) return status;
  constexpr std::uint64_t wanted_workspace = 4096;
  const auto limits = emulator::content_of<emulator::Preference>(preference);
  const std::uint64_t workspace = std::min(limits.workspace, wanted_workspace);
  results[0] = {};
  keep(emulator::Algorithm{emulator::algorithm_tag, workspace, limits.alignments, problem->a.type, problem->d.type},
       &results[0].algo);
  results[0].workspaceSize = workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Call call("cublasLtMatmul");
  if (call.fails()) return call.failure(CUBLAS_STATUS_EXECUTION_FAILED);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto problem = emulator::problem_of(operation, a_layout, b_layout, c_layout, d_layout);
  CUstream_st* const queue = call.machine().find_stream(stream);
  if (!problem || queue == nullptr || alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr ||
      c == nullptr || d == nullptr || (workspace == nullptr && workspace_bytes > 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = check(call.machine(), *problem); status != CUBLAS_STATUS_SUCCESS) return status;
  const emulator::Operands operands{a, b, c, d};
  if (algorithm != nullptr &&
      !suits(emulator::content_of<emulator::Algorithm>(algorithm), *problem, operands, workspace_bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  emulator::Device& device = call.machine().device(queue->device);
  if (device.fault != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto make = problem->a.type == CUDA_R_64F ? emulator::operation_of<double> : emulator::operation_of<float>;
  call.machine().enqueue(queue, make(device, *problem, operands, alpha, beta, workspace, workspace_bytes));
  return CUBLAS_STATUS_SUCCESS;
}
