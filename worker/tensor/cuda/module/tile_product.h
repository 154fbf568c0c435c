#pragma once

#include <type_traits>

#include "common/float16.h"
#include "worker/tensor/cuda/module/chunk.h"
#include "worker/tensor/cuda/module/warp.h"
#include "worker/tensor/functors/math.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#endif

// Products of tiles in shared memory, each made by one warp: a strip of rows of the result stays in the registers of
// its lanes. 16-bit formats are multiplied by the tensor cores where the architecture has them for the format (float16
// from sm_70 on, bfloat16 from sm_80 on), everything else by fused multiply-add in the type of computation.
//
// All functions are for the whole warp. Tiles are row-major; strides are in elements, multiples of 16 bytes, and the
// tiles' first elements are aligned to 32 bytes.
namespace ddprun::cuda {

// float64 has half as many, so that its strips fit into as many registers as those of float32.
template <class Stored>
inline constexpr int strip_rows = sizeof(ComputeType<Stored>) == 8 ? 8 : 16;

__device__ __forceinline__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % warp_size;
}

#if defined(__CUDA_ARCH__)
template <class Stored>
inline constexpr bool on_tensor_cores = (std::is_same_v<Stored, Float16> && __CUDA_ARCH__ >= 700) ||
                                        (std::is_same_v<Stored, BFloat16> && __CUDA_ARCH__ >= 800);
#else
template <class Stored>
inline constexpr bool on_tensor_cores = false;
#endif

// The places of a lane's elements of a strip.
struct PlainLayout {
  __device__ __forceinline__ explicit PlainLayout(void*) : row(lane_of_warp() / 8), column(lane_of_warp() % 8) {}
  int row, column;  // those of the first one
};

// Lane l has rows l / 8 + 4 i and columns l % 8 + 8 j.
template <class Stored, int Columns>
class PlainStrip {
 public:
  using T = ComputeType<Stored>;
  static_assert(Columns % 8 == 0);

  static constexpr int lane_rows = strip_rows<Stored> / 4, lane_columns = Columns / 8;
  static constexpr int lane_elements = lane_rows * lane_columns;
  __device__ __forceinline__ T& operator[](int element) {
    return values_[element / lane_columns][element % lane_columns];
  }
  __device__ __forceinline__ static int row(const PlainLayout& layout, int element) {
    return layout.row + 4 * (element / lane_columns);
  }
  __device__ __forceinline__ static int column(const PlainLayout& layout, int element) {
    return layout.column + 8 * (element % lane_columns);
  }

  // Adds left times right, where left has Inner columns.
  template <int Inner>
  __device__ __forceinline__ void add_product(const Stored* left, int left_stride, const Stored* right,
                                              int right_stride) {
    left += lane_of_warp() / 8 * left_stride;
    right += lane_of_warp() % 8;
    for (int k = 0; k < Inner; ++k) {
      T factor[lane_rows];
      DDPRUN_UNROLL
      for (int i = 0; i < lane_rows; ++i) factor[i] = static_cast<T>(left[4 * i * left_stride + k]);
      DDPRUN_UNROLL
      for (int j = 0; j < lane_columns; ++j) {
        const T other = static_cast<T>(right[k * right_stride + 8 * j]);
        DDPRUN_UNROLL
        for (int i = 0; i < lane_rows; ++i) values_[i][j] = functor::fma(factor[i], other, values_[i][j]);
      }
    }
  }

  // Adds left times right transposed, where both have Inner columns.
  template <int Inner>
  __device__ __forceinline__ void add_product_transposed(const Stored* left, int left_stride, const Stored* right,
                                                         int right_stride) {
    constexpr int step = pack_size<Stored>;
    left += lane_of_warp() / 8 * left_stride;
    right += lane_of_warp() % 8 * right_stride;
    for (int k = 0; k < Inner; k += step) {
      Chunk<Stored> factor[lane_rows];
      DDPRUN_UNROLL
      for (int i = 0; i < lane_rows; ++i) factor[i] = load_chunk(left + 4 * i * left_stride + k, step, true);
      DDPRUN_UNROLL
      for (int j = 0; j < lane_columns; ++j) {
        const Chunk<Stored> other = load_chunk(right + 8 * j * right_stride + k, step, true);
        DDPRUN_UNROLL
        for (int i = 0; i < lane_rows; ++i) DDPRUN_UNROLL
        for (int n = 0; n < step; ++n)
          values_[i][j] =
              functor::fma(static_cast<T>(factor[i].elements[n]), static_cast<T>(other.elements[n]), values_[i][j]);
      }
    }
  }

 private:
  T values_[lane_rows][lane_columns] = {};
};

#if defined(__CUDACC__)
using Square = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
inline constexpr int square_elements = 8;  // those of a lane
static_assert(Square::num_elements == square_elements);

// The division of the elements of a square among the lanes is unspecified, but alike for all squares: it is read from
// one that holds its own coordinates.
struct TensorCoreLayout {
  // scratch: 256 elements of this warp's own.
  __device__ __forceinline__ explicit TensorCoreLayout(float* scratch) {
    for (int i = lane_of_warp(); i < 256; i += warp_size) scratch[i] = static_cast<float>(i);
    __syncwarp();
    Square square;
    nvcuda::wmma::load_matrix_sync(square, scratch, 16, nvcuda::wmma::mem_row_major);
    DDPRUN_UNROLL
    for (int i = 0; i < square_elements; ++i) position[i] = static_cast<int>(square.x[i]);
    __syncwarp();
  }
  int position[square_elements];
};

// Squares of 16 x 16 side by side.
template <class Stored, int Columns>
class TensorCoreStrip {
  using Element = std::conditional_t<std::is_same_v<Stored, BFloat16>, __nv_bfloat16, __half>;
  using Left = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, Element, nvcuda::wmma::row_major>;
  template <class Order>
  using Right = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, Element, Order>;

 public:
  using T = float;
  static_assert(Columns % 16 == 0);

  static constexpr int lane_elements = Columns / 16 * square_elements;
  __device__ __forceinline__ float& operator[](int element) {
    return squares_[element / square_elements].x[element % square_elements];
  }
  __device__ __forceinline__ static int row(const TensorCoreLayout& layout, int element) {
    return layout.position[element % square_elements] / 16;
  }
  __device__ __forceinline__ static int column(const TensorCoreLayout& layout, int element) {
    return layout.position[element % square_elements] % 16 + element / square_elements * 16;
  }

  __device__ __forceinline__ TensorCoreStrip() {
    DDPRUN_UNROLL
    for (int j = 0; j < Columns / 16; ++j) nvcuda::wmma::fill_fragment(squares_[j], 0.0F);
  }

  template <int Inner>
  __device__ __forceinline__ void add_product(const Stored* left, int left_stride, const Stored* right,
                                              int right_stride) {
    add<Inner, nvcuda::wmma::row_major>(left, left_stride, right, right_stride, 16 * right_stride, 16);
  }

  template <int Inner>
  __device__ __forceinline__ void add_product_transposed(const Stored* left, int left_stride, const Stored* right,
                                                         int right_stride) {
    add<Inner, nvcuda::wmma::col_major>(left, left_stride, right, right_stride, 16, 16 * right_stride);
  }

 private:
  template <int Inner, class Order>
  __device__ __forceinline__ void add(const Stored* left, int left_stride, const Stored* right, int right_stride,
                                      int next_inner, int next_square) {
    static_assert(Inner % 16 == 0);
    DDPRUN_NO_UNROLL
    for (int k = 0; k < Inner / 16; ++k) {
      Left a;
      nvcuda::wmma::load_matrix_sync(a, reinterpret_cast<const Element*>(left + 16 * k),
                                     static_cast<unsigned>(left_stride));
      DDPRUN_UNROLL
      for (int j = 0; j < Columns / 16; ++j) {
        Right<Order> b;
        nvcuda::wmma::load_matrix_sync(b, reinterpret_cast<const Element*>(right + k * next_inner + j * next_square),
                                       static_cast<unsigned>(right_stride));
        nvcuda::wmma::mma_sync(squares_[j], a, b, squares_[j]);
      }
    }
  }

  Square squares_[Columns / 16];
};
#endif

// strip_rows rows of a product's result, zero at first. A lane has lane_elements of them: strip[e] is at row(layout, e)
// and column(layout, e), with a StripLayout made once for all strips.
#if defined(__CUDACC__)
template <class Stored, int Columns>
using Strip =
    std::conditional_t<on_tensor_cores<Stored>, TensorCoreStrip<Stored, Columns>, PlainStrip<Stored, Columns>>;
template <class Stored>
using StripLayout = std::conditional_t<on_tensor_cores<Stored>, TensorCoreLayout, PlainLayout>;
#else
template <class Stored, int Columns>
using Strip = PlainStrip<Stored, Columns>;
template <class Stored>
using StripLayout = PlainLayout;
#endif

// visit(row, column, element)
template <class Layout, class Strip, class Visit>
__device__ __forceinline__ void for_each_element(const Layout& layout, Strip& strip, Visit visit) {
  DDPRUN_UNROLL
  for (int e = 0; e < Strip::lane_elements; ++e) visit(Strip::row(layout, e), Strip::column(layout, e), strip[e]);
}
// Does the same for two strips at once.
template <class Layout, class Strip, class Visit>
__device__ __forceinline__ void for_each_element(const Layout& layout, Strip& a, Strip& b, Visit visit) {
  DDPRUN_UNROLL
  for (int e = 0; e < Strip::lane_elements; ++e) visit(Strip::row(layout, e), Strip::column(layout, e), a[e], b[e]);
}

}  // namespace ddprun::cuda
