#include "worker/tensor/onednn/matmul.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include <dnnl.hpp>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/tensor/bounded_cache.h"
#include "worker/tensor/onednn/threads.h"

namespace ddprun::onednn {

namespace {

bool has_instructions(dnnl::cpu_isa isa) {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(isa);
  return (has & needed) == needed;
}

// With AVX-512 oneDNN's matmul primitive has code of its own, generated for each product in 0.2 to 2 ms; that of sgemm
// takes 55 ms on a Zen 4, which a small network need not wait for. A product of long sides goes to sgemm: with the
// primitive steps of GPT nano took 7 % longer.
bool suits_primitive(const Product& product) {
  constexpr std::int64_t short_side = 64;
  static const bool has_code = has_instructions(dnnl::cpu_isa::avx512_core);
  return has_code && !product.options.varying && std::min({product.m, product.n, product.k}) <= short_side;
}

// Clears the result where there is nothing to add up, as oneDNN leaves it alone. Returns whether that is all.
bool is_done_without_sums(const Product& product, float* out) {
  const auto [m, n, k, a_stride, b_stride, out_stride, options, bias] = product;
  if (k == 0 && !options.accumulate)
    for (std::int64_t row = 0; row < m; ++row) std::fill_n(out + row * out_stride, n, 0.0F);
  return m == 0 || n == 0 || k == 0;
}

// A part of a product's result: rows [row, row + rows), columns [column, column + columns).
struct Block {
  std::int64_t row, rows, column, columns;
};

// This is oneDNN's sgemm rather than OpenBLAS's: on one thread of a Sapphire Rapids core it ran at 109 to 189 GFLOP/s
// where OpenBLAS 0.3.21 ran at 87 to 160, over the products of the CNN and of a 784-1024-1024-10 MLP at batch 64 (the
// smallest alike). It also brings no second set of threads beside oneDNN's own.
void multiply_block(const Product& product, const Block& block, const float* a, const float* b, float* out) {
  const auto [m, n, k, a_stride, b_stride, out_stride, options, bias] = product;
  const float* const left = a + block.row * (options.transpose_a ? 1 : a_stride);
  const float* const right = b + block.column * (options.transpose_b ? b_stride : 1);
  const dnnl_status_t status =
      dnnl_sgemm(options.transpose_a ? 'T' : 'N', options.transpose_b ? 'T' : 'N', block.rows, block.columns, k, 1.0F,
                 left, a_stride, right, b_stride, options.accumulate ? 1.0F : 0.0F,
                 out + block.row * out_stride + block.column, out_stride);
  if (status != dnnl_success) {
    throw make_error(Errc::internal, "oneDNN: the product of {} x {} and {} x {} failed with status {}", m, k, k, n,
                     static_cast<int>(status));
  }
}

// The division of one dimension of a result: so many parts, each of `size` but the last.
struct Division {
  std::int64_t parts, size;
};
Division divide(std::int64_t extent, std::int64_t most_parts, std::int64_t least_size) {
  constexpr std::int64_t multiple = 64;
  const std::int64_t parts = std::clamp<std::int64_t>(extent / least_size, 1, most_parts);
  const std::int64_t size = round_up(divide_up(extent, parts), multiple);
  return {divide_up(extent, size), size};
}

// For sums whose bits would depend on the number of threads, in a process that has several. Here the result is divided
// into blocks, each of which one thread computes. Only the sizes decide how many there are: sgemm's order of additions
// depends on the sizes of a block.
void multiply_blocks(const Product& product, const float* a, const float* b, float* out) {
  constexpr std::int64_t most_parts = 4, least_size = 192;
  const auto rows = divide(product.m, most_parts, least_size), columns = divide(product.n, most_parts, least_size);
  run_parts(static_cast<int>(rows.parts * columns.parts), [&](int part) {
    const std::int64_t row = part / columns.parts * rows.size, column = part % columns.parts * columns.size;
    multiply_block(product,
                   {row, std::min(rows.size, product.m - row), column, std::min(columns.size, product.n - column)}, a,
                   b, out);
  });
}

// Returns the most elements of a sum to which sgemm gives the same bits with any number of threads, found by comparing
// results. It divides longer ones among its threads; without AVX-512 the block of the result that a thread computes
// decides the order of additions of any sum.
std::int64_t longest_sum_of_sgemm() {
  static const bool keeps_order = has_instructions(dnnl::cpu_isa::avx512_core);
  return keeps_order ? 256 : 0;
}

void multiply_by_sgemm(const Product& product, const float* a, const float* b, float* out) {
  if (product.k > longest_sum_of_sgemm() && divides_sums())
    multiply_blocks(product, a, b, out);
  else
    multiply_block(product, {0, product.m, 0, product.n}, a, b, out);
}

}  // namespace

void multiply(const Product& product, const float* a, const float* b, float* out) {
  if (is_done_without_sums(product, out)) return;
  if (suits_primitive(product))
    multiply(product, {DType::float32, DType::float32}, a, b, out);
  else
    multiply_by_sgemm(product, a, b, out);
}

// Intel's processors multiply pairs of bfloat16 at half the rate of float32, so their products take as long, and
// rounding comes on top: a step of GPT small takes 915 ms with them and 610 without on a Sapphire Rapids whose tiles
// (AMX) its hypervisor hides.
bool multiplies_fast(DType dtype) {
  if (dtype != DType::bfloat16 || !has_instructions(dnnl::cpu_isa::avx512_core_bf16)) return false;
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") != 0) return has_instructions(dnnl::cpu_isa::avx512_core_amx);
#endif
  return true;
}

namespace {

using dnnl::memory;

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return memory::data_type::bf16;
    case DType::float16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f32;
  }
}

// Describes the rows and columns of a matrix that may be stored transposed.
memory::desc desc_of(std::int64_t rows, std::int64_t columns, std::int64_t stride, bool transposed, DType dtype) {
  return {{rows, columns}, type_of(dtype), transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

struct Primitive {
  dnnl::matmul run;
  memory a, b, out, bias;
};

// A thread's engine, stream and primitives, for one number of oneDNN's threads.
class Context {
 public:
  Primitive& primitive(const Product& product, Operands types) {
    return primitives_.get({product, types.in, types.out}, [&] { return make(product, types); });
  }
  dnnl::stream& stream() { return stream_; }

 private:
  Primitive make(const Product& p, Operands types) const {
    const auto a = desc_of(p.m, p.k, p.a_stride, p.options.transpose_a, types.in);
    const auto b = desc_of(p.k, p.n, p.b_stride, p.options.transpose_b, types.in);
    const auto out = desc_of(p.m, p.n, p.out_stride, false, types.out);
    const memory::desc bias =
        p.bias ? memory::desc({1, p.n}, type_of(types.out), memory::format_tag::ab) : memory::desc();
    dnnl::primitive_attr attributes;
    if (p.options.accumulate) {
      dnnl::post_ops after;
      after.append_sum();
      attributes.set_post_ops(after);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, a, b, bias, out, attributes);
#else
    const dnnl::matmul::primitive_desc desc({a, b, bias, out}, attributes, engine_);
#endif
    return {dnnl::matmul(desc), memory(a, engine_, nullptr), memory(b, engine_, nullptr), memory(out, engine_, nullptr),
            p.bias ? memory(bias, engine_, nullptr) : memory()};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  BoundedCache<std::tuple<Product, DType, DType>, Primitive> primitives_;
};

}  // namespace

namespace {

void run_primitive(const Product& product, Operands types, const void* a, const void* b, void* out, const void* bias) {
  auto& context = context_for_threads<Context>();
  Primitive& primitive = context.primitive(product, types);
  primitive.a.set_data_handle(const_cast<void*>(a));
  primitive.b.set_data_handle(const_cast<void*>(b));
  primitive.out.set_data_handle(out);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, primitive.a}, {DNNL_ARG_WEIGHTS, primitive.b}, {DNNL_ARG_DST, primitive.out}};
  if (product.bias) {
    primitive.bias.set_data_handle(const_cast<void*>(bias));
    arguments.emplace(DNNL_ARG_BIAS, primitive.bias);
  }
  primitive.run.execute(context.stream(), arguments);
  context.stream().wait();
}

const std::byte* moved(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

// Returns the most elements of a sum that the primitive does not divide among its threads, found by comparing results.
// With AMX it divides sums of 768 bfloat16, and none of 512.
std::int64_t longest_whole_sum(DType dtype) {
  static const bool has_tiles = has_instructions(dnnl::cpu_isa::avx512_core_amx);
  return has_tiles && dtype == DType::bfloat16 ? 512 : 1024;
}

// Does what multiply_blocks() does, for sums that the primitive would divide.
void run_parts_of_rows(const Product& product, Operands types, const void* a, const void* b, void* out,
                       const void* bias) {
  constexpr std::int64_t most_parts = 16, least_size = 256;
  const auto rows = divide(product.m, most_parts, least_size);
  run_parts(static_cast<int>(rows.parts), [&](int part) {
    const std::int64_t first = part * rows.size;
    Product own = product;
    own.m = std::min(rows.size, product.m - first);
    auto* const result = const_cast<std::byte*>(moved(out, first * product.out_stride, types.out));
    run_primitive(own, types, moved(a, first * (product.options.transpose_a ? 1 : product.a_stride), types.in), b,
                  result, bias);
  });
}

}  // namespace

void multiply(const Product& product, Operands types, const void* a, const void* b, void* out, const void* bias) {
  try {
    if (product.k > longest_whole_sum(types.in) && divides_sums())
      run_parts_of_rows(product, types, a, b, out, bias);
    else
      run_primitive(product, types, a, b, out, bias);
  } catch (const dnnl::error& error) {
    throw make_error(Errc::internal, "oneDNN: the product of {} matrices of {} x {} and {} x {}: {}", name_of(types.in),
                     product.m, product.k, product.k, product.n, error.what());
  }
}

}  // namespace ddprun::onednn
