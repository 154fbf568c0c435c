#include <algorithm>

#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/indexing.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/cuda/module/sorted_index.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

// Several sources may go to one place. A thread has all that can meet where these are few, in their order; otherwise
// they are sorted by destination first. There are no atomic operations: the bits are the same in every run.
namespace ddprun::cuda {
namespace {

using kernels::Axis;

// --- a thread for each line along the axis

struct Lines {
  std::int64_t outer, n, inner;
  std::int64_t length;  // sources of a line

  std::int64_t count() const { return outer * inner; }
};

struct Assign {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T, T x) const {
    return x;
  }
};
struct Accumulate {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T out, T x) const {
    using C = ComputeType<T>;
    return T(static_cast<C>(out) + static_cast<C>(x));
  }
};

template <class F, class T>
__global__ void __launch_bounds__(block_threads, 1)
    scatter_lines_kernel(Lines lines, Divider inner, const T* x, const std::int64_t* index, T* out) {
  for (std::int64_t i = thread_of_grid(); i < lines.outer * lines.inner; i += threads_of_grid()) {
    const std::int64_t outer = inner.quotient(i), column = i - outer * lines.inner;
    const std::int64_t start = outer * lines.length * lines.inner + column;
    T* to = out + outer * lines.n * lines.inner + column;
    for (std::int64_t j = 0; j < lines.length; ++j) {
      const std::int64_t from = start + j * lines.inner;
      T& place = to[index[from] * lines.inner];
      place = F{}(place, x[from]);
    }
  }
}

constexpr std::int64_t short_line = 32;
constexpr std::int64_t many_lines = 65536;

bool suits_lines(const Lines& lines) {
  const std::int64_t count = lines.count() * lines.length;
  return lines.length <= short_line || lines.count() >= many_lines ||
         !SortedIndex::is_sortable(count, lines.count() * lines.n);
}

Lines lines_of(const Axis& axis, std::int64_t count) {
  const std::int64_t lines = axis.outer * axis.inner;
  return {axis.outer, axis.n, axis.inner, lines > 0 ? count / lines : 0};
}

template <class F, class T>
void scatter_lines(DeviceContext& device, const Lines& lines, const View& x, const View& index, const View& out) {
  launch(device, scatter_lines_kernel<F, T>, grid_of_threads(device, lines.count()), block_threads, 0, lines,
         Divider(lines.inner), elements<T>(x), elements<std::int64_t>(index), writable<T>(out));
}

SortedIndex sorted(DeviceContext& device, const Lines& lines, const View& index) {
  const Destination destination{lines.n, Divider(lines.inner), Divider(lines.length * lines.inner)};
  return {device, lines.count() * lines.length, lines.count() * lines.n, elements<std::int64_t>(index), destination};
}

// The last of equal destinations prevails.
template <class Word>
__global__ void __launch_bounds__(block_threads, 1)
    assign_sorted_kernel(std::int64_t count, const std::uint32_t* destinations, const std::uint32_t* sources,
                         const Word* x, Word* out) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const std::uint32_t own = destinations[i];
    if (i + 1 == count || destinations[i + 1] != own) out[own] = x[sources[i]];
  }
}

// --- sums of sorted rows

// The sources of a thread; also the most that are added in one chain in the type of computation.
constexpr std::int64_t chunk_length = 64;

struct Sorted {
  std::int64_t count;
  const std::uint32_t *destinations, *sources;
};

// The share of a thread: sources [first, last) of the sorted ones. Where a destination has sources of several chunks,
// they are added in each one and kept in `partial`, (chunks, 2, width): the sum of the destination that began in an
// earlier chunk, and that of the one that continues in the next.
struct Chunk {
  std::int64_t first, last;
  bool continues;  // its first destination began before it
  bool goes_on;    // its last destination continues after it

  __device__ Chunk(const Sorted& sorted, std::int64_t chunk)
      : first(chunk * chunk_length),
        last(std::min(first + chunk_length, sorted.count)),
        continues(first > 0 && sorted.destinations[first - 1] == sorted.destinations[first]),
        goes_on(last < sorted.count && sorted.destinations[last - 1] == sorted.destinations[last]) {}
};

template <class C, int size>
__device__ void clear(Pack<C, size>& pack) {
  for (int k = 0; k < size; ++k) pack.elements[k] = 0;
}

template <int size, class T>
__device__ Pack<ComputeType<T>, size> computed(const T* from) {
  const Pack<T, size> stored = *reinterpret_cast<const Pack<T, size>*>(from);
  Pack<ComputeType<T>, size> result;
  for (int k = 0; k < size; ++k) result.elements[k] = static_cast<ComputeType<T>>(stored.elements[k]);
  return result;
}

// A thread has a chunk and `size` columns.
template <int size, class T>
__global__ void __launch_bounds__(block_threads, 1)
    add_chunks_kernel(Sorted sorted, Divider packs, std::int64_t chunks, const T* x, T* out, ComputeType<T>* partial) {
  using C = ComputeType<T>;
  const std::int64_t width = packs.divisor() * size;
  for (std::int64_t i = thread_of_grid(); i < chunks * packs.divisor(); i += threads_of_grid()) {
    const std::int64_t number = packs.quotient(i), column = (i - number * packs.divisor()) * size;
    const Chunk chunk(sorted, number);
    const std::uint32_t last_destination = sorted.destinations[chunk.last - 1];
    bool continues = chunk.continues;
    for (std::int64_t at = chunk.first; at < chunk.last;) {
      const std::uint32_t own = sorted.destinations[at];
      const bool goes_on = chunk.goes_on && own == last_destination;
      T* to = out + own * width + column;
      Pack<C, size> total;
      if (continues || goes_on)
        clear(total);
      else
        total = computed<size>(to);
      for (; at < chunk.last && sorted.destinations[at] == own; ++at) {
        const Pack<C, size> more = computed<size>(x + sorted.sources[at] * width + column);
        for (int k = 0; k < size; ++k) total.elements[k] += more.elements[k];
      }
      if (continues || goes_on) {
        C* kept = partial + (number * 2 + (continues ? 0 : 1)) * width + column;
        for (int k = 0; k < size; ++k) kept[k] = total.elements[k];
      } else {
        for (int k = 0; k < size; ++k) to[k] = T(total.elements[k]);
      }
      continues = false;
    }
  }
}

// Returns how many of the sorted sources go to this destination or to one before it.
__device__ std::int64_t end_of(const Sorted& sorted, std::uint32_t destination) {
  std::int64_t low = 0, high = sorted.count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (sorted.destinations[middle] <= destination)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// A thread has a column of a chunk, and adds what all chunks have of the destination that begins in this one and
// continues after it.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    add_partial_kernel(Sorted sorted, Divider width, std::int64_t chunks, const ComputeType<T>* partial, T* out) {
  using C = ComputeType<T>;
  for (std::int64_t i = thread_of_grid(); i < chunks * width.divisor(); i += threads_of_grid()) {
    const std::int64_t number = width.quotient(i), column = i - number * width.divisor();
    const Chunk chunk(sorted, number);
    if (!chunk.goes_on) continue;
    const std::uint32_t own = sorted.destinations[chunk.last - 1];
    if (chunk.continues && sorted.destinations[chunk.first] == own) continue;  // it began earlier
    const std::int64_t last = (end_of(sorted, own) - 1) / chunk_length;
    auto total = static_cast<double>(partial[(number * 2 + 1) * width.divisor() + column]);
    for (std::int64_t next = number + 1; next <= last; ++next)
      total += static_cast<double>(partial[next * 2 * width.divisor() + column]);
    T& to = out[own * width.divisor() + column];
    to = T(static_cast<C>(static_cast<double>(static_cast<C>(to)) + total));
  }
}

template <class T>
void add_sorted(DeviceContext& device, const SortedIndex& index, std::int64_t count, std::int64_t width, const T* x,
                T* out) {
  const Sorted sorted{count, index.destinations(), index.sources()};
  const std::int64_t chunks = divide_up(count, chunk_length);
  const Scratch partial = scratch_for<ComputeType<T>>(device, chunks * 2 * width);
  const auto add_chunks = [&]<int size>() {
    launch(device, add_chunks_kernel<size, T>, grid_of_threads(device, chunks * (width / size)), block_threads, 0,
           sorted, Divider(width / size), chunks, x, out, partial.data<ComputeType<T>>());
  };
  constexpr int wide = pack_size<T>;
  if (width % wide == 0 && is_aligned<wide>(x) && is_aligned<wide>(out))
    add_chunks.template operator()<wide>();
  else
    add_chunks.template operator()<1>();
  if (chunks == 1) return;
  launch(device, add_partial_kernel<T>, grid_of_threads(device, chunks * width), block_threads, 0, sorted,
         Divider(width), chunks, static_cast<const ComputeType<T>*>(partial.data<ComputeType<T>>()), out);
}

}  // namespace

void scatter_add(DeviceContext& device, const View& x, const Axis& axis, const View& index, const View& out) {
  const std::int64_t count = element_count(index);
  if (count == 0) return;
  const Lines lines = lines_of(axis, count);
  visit_floating(device, "scatter_add", x.dtype, [&]<class T>() {
    if (suits_lines(lines)) return scatter_lines<Accumulate, T>(device, lines, x, index, out);
    add_sorted(device, sorted(device, lines, index), count, 1, elements<T>(x), writable<T>(out));
  });
}

void scatter(DeviceContext& device, const View& x, const Axis& axis, const View& index, const View& out) {
  const std::int64_t count = element_count(index);
  if (count == 0) return;
  const Lines lines = lines_of(axis, count);
  visit_word(x.dtype, [&]<class Word>() {
    if (suits_lines(lines)) return scatter_lines<Assign, Word>(device, lines, x, index, out);
    const SortedIndex order = sorted(device, lines, index);
    launch(device, assign_sorted_kernel<Word>, grid_of_threads(device, count), block_threads, 0, count,
           order.destinations(), order.sources(), elements<Word>(x), writable<Word>(out));
  });
}

void scatter_add_rows(DeviceContext& device, const View& x, const View& index, const View& out) {
  const std::int64_t count = element_count(index), rows = out.shape[0];
  if (count == 0 || element_count(out) == 0) return;
  if (!SortedIndex::is_sortable(count, rows)) refuse_size(device, "scatter_add_rows", std::max(count, rows));
  const Destination itself{rows, Divider(1), Divider(count)};
  visit_floating(device, "scatter_add_rows", x.dtype, [&]<class T>() {
    const SortedIndex order(device, count, rows, elements<std::int64_t>(index), itself);
    add_sorted(device, order, count, element_count(out) / rows, elements<T>(x), writable<T>(out));
  });
}

}  // namespace ddprun::cuda
