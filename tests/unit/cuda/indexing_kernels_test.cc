// Indexing on an emulated device: copies and assignments give the CPU's bits, and so do sums of few; sums of many are
// compared with a loop in double.
#include <cmath>
#include <limits>

#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using kernels::Axis;

namespace {

const kernels::Table& cpu() {
  return kernels::table({});
}

Tensor random_index(const Shape& shape, std::int64_t n, std::uint64_t seed) {
  Generator generator(seed);
  Tensor index = Tensor::empty(shape, DType::int64);
  for (std::int64_t i = 0; i < index.numel(); ++i)
    index.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(n)));
  return index;
}

Tensor random_of(const Shape& shape, std::uint64_t seed, DType dtype) {
  const Tensor wide = kernels::scale(random_tensor(shape, seed), 20);
  return dtype == DType::uint8 ? kernels::unary(kernels::Unary::abs, wide).to(dtype) : wide.to(dtype);
}

struct Choice {
  Axis axis;        // axis of the tensor that is indexed
  std::int64_t of;  // number of indices of a line
};
// The choices have lines of a thread, and sorted ones with many and with few destinations.
const std::vector<Choice> choices{{{3, 4, 1}, 1}, {{2, 9, 5}, 3},   {{1, 7, 1}, 20},    {{0, 5, 2}, 3},
                                  {{4, 5, 6}, 0}, {{1, 7, 1}, 900}, {{2, 300, 3}, 200}, {{1, 1, 1}, 333}};

// Even the sums of a few million addends do not lose more than this, taken in chains of 64.
double bound(DType dtype) {
  if (dtype == DType::float64) return 128 * std::numeric_limits<double>::epsilon();
  const double stored = dtype == DType::bfloat16 ? 0x1p-7 : dtype == DType::float16 ? 0x1p-10 : 0;
  return 128 * static_cast<double>(std::numeric_limits<float>::epsilon()) + stored;
}

}  // namespace

TEST_CASE("gather gives the CPU's elements for every type") {
  for (const DType dtype : all_types) {
    for (const Choice& choice : choices) {
      INFO(name_of(dtype) << ", " << choice.axis.outer << " " << choice.axis.inner << ", " << choice.of);
      const Tensor x = random_of({choice.axis.outer, choice.axis.n, choice.axis.inner}, 1, dtype);
      const Tensor index = random_index({choice.axis.outer, choice.of, choice.axis.inner}, choice.axis.n, 2);
      Tensor expected = Tensor::empty(index.shape(), dtype);
      const DeviceTensor on_x(x, 1), on_index(index), out(expected);
      cpu().gather(x, choice.axis, index, expected);
      check(device_api().gather(test_device(), on_x.view(), choice.axis, on_index.view(), out.view()));
      CHECK(same_values(out.read(), expected));
    }
  }
}

TEST_CASE("scatter leaves the last of several elements, as the CPU does") {
  for (const DType dtype : all_types) {
    for (const Choice& choice : choices) {
      INFO(name_of(dtype) << ", " << choice.axis.outer << " " << choice.axis.inner << ", " << choice.of);
      const Tensor index = random_index({choice.axis.outer, choice.of, choice.axis.inner}, choice.axis.n, 2);
      const Tensor x = random_of(index.shape(), 1, dtype);
      Tensor expected = random_of({choice.axis.outer, choice.axis.n, choice.axis.inner}, 3, dtype);
      const DeviceTensor on_x(x, 1), on_index(index), out(expected);
      cpu().scatter(x, choice.axis, index, expected);
      check(device_api().scatter(test_device(), on_x.view(), choice.axis, on_index.view(), out.view()));
      CHECK(same_values(out.read(), expected));
    }
  }
}

TEST_CASE("scatter_add adds as exactly as its bound, and the same bits in every run") {
  for (const DType dtype : floating_types) {
    for (const Choice& choice : choices) {
      INFO(name_of(dtype) << ", " << choice.axis.outer << " " << choice.axis.inner << ", " << choice.of);
      const Tensor index = random_index({choice.axis.outer, choice.of, choice.axis.inner}, choice.axis.n, 2);
      const Tensor x = random_tensor(index.shape(), 1).to(dtype);
      const Tensor before = random_tensor({choice.axis.outer, choice.axis.n, choice.axis.inner}, 3).to(dtype);
      Tensor expected = before.to(DType::float64).clone();
      Tensor of_cpu = before.clone();
      const DeviceTensor on_x(x, 1), on_index(index), out(before), other(before);
      cpu().scatter_add(x.to(DType::float64), choice.axis, index, expected);
      cpu().scatter_add(x, choice.axis, index, of_cpu);
      check(device_api().scatter_add(test_device(), on_x.view(), choice.axis, on_index.view(), out.view()));
      check(device_api().scatter_add(test_device(), on_x.view(), choice.axis, on_index.view(), other.view()));
      CHECK(same_bits(out.read(), other.read()));
      if (choice.of <= 32)
        CHECK(same_values(out.read(), of_cpu));
      else
        CHECK(difference(out.read(), expected) <= bound(dtype));
    }
  }
}

TEST_CASE("gather_rows gives the CPU's rows for every type and width") {
  for (const DType dtype : all_types) {
    for (const std::int64_t width : {1, 3, 16, 50}) {
      for (const std::int64_t shift : {0, 1}) {
        INFO(name_of(dtype) << ", " << width << " from " << shift);
        const Tensor table = random_of({23, width}, 1, dtype), index = random_index({5, 8}, 23, 2);
        Tensor expected = Tensor::empty({5, 8, width}, dtype);
        const DeviceTensor on_table(table, shift), on_index(index), out(expected);
        cpu().gather_rows(table, index, expected);
        check(device_api().gather_rows(test_device(), on_table.view(), on_index.view(), out.view()));
        CHECK(same_values(out.read(), expected));
      }
    }
  }
  const DeviceTensor table(Tensor::zeros({3, 4})), index(Tensor::zeros({0}, DType::int64)), out(Tensor::zeros({0, 4}));
  check(device_api().gather_rows(test_device(), table.view(), index.view(), out.view()));
}

TEST_CASE("rows that are added to distinct rows give the CPU's bits") {
  // The 300 digits take two passes, each index at most once.
  for (const DType dtype : floating_types) {
    Tensor index = Tensor::empty({150}, DType::int64);
    for (std::int64_t i = 0; i < 150; ++i) index.data<std::int64_t>()[i] = i * 7 % 300;
    const Tensor x = random_tensor({150, 12}, 1).to(dtype);
    Tensor expected = random_tensor({300, 12}, 2).to(dtype);
    const DeviceTensor on_x(x), on_index(index), out(expected);
    cpu().scatter_add_rows(x, index, expected);
    check(device_api().scatter_add_rows(test_device(), on_x.view(), on_index.view(), out.view()));
    CHECK(same_values(out.read(), expected));
  }
}

TEST_CASE("rows are added to rows as exactly as the bound, however many meet") {
  struct Case {
    std::int64_t rows, width, count, different;
  };
  for (const DType dtype : floating_types) {
    for (const Case& one : std::vector<Case>{{5, 4, 0, 1},            // nothing
                                             {1, 1, 1, 1},            // one
                                             {50, 8, 64, 50},         // one chunk
                                             {70000, 3, 300, 70000},  // three digits, odd width
                                             {300, 16, 2500, 2},      // long runs over many chunks and tiles
                                             {300, 5, 700, 1},        // all have one destination
                                             {257, 24, 2049, 257}}) {
      INFO(name_of(dtype) << ", " << one.count << " to " << one.different << " of " << one.rows);
      const Tensor index = random_index({one.count}, one.different, 1);
      const Tensor x = random_tensor({one.count, one.width}, 2).to(dtype);
      const Tensor before = random_tensor({one.rows, one.width}, 3).to(dtype);
      Tensor expected = before.to(DType::float64).clone();
      cpu().scatter_add_rows(x.to(DType::float64), index, expected);
      const DeviceTensor on_x(x), shifted(x, 1), on_index(index), out(before), other(before, 1);
      check(device_api().scatter_add_rows(test_device(), on_x.view(), on_index.view(), out.view()));
      check(device_api().scatter_add_rows(test_device(), shifted.view(), on_index.view(), other.view()));
      CHECK(difference(out.read(), expected) <= bound(dtype));
      CHECK(same_bits(out.read(), other.read()));
    }
  }
}
