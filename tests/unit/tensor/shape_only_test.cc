#include "worker/tensor/shape_only.h"

#include <fstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "worker/tensor/device.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

struct Pages {
  std::size_t reserved = 0, resident = 0;  // bytes
};
Pages pages_of_process() {
  std::ifstream file("/proc/self/statm");
  Pages pages;
  REQUIRE(file >> pages.reserved >> pages.resident);
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {pages.reserved * size, pages.resident * size};
}

// Limits the addresses of this process to so many bytes more than it has.
class AddressLimit {
 public:
  explicit AddressLimit(std::size_t more) {
    REQUIRE(::getrlimit(RLIMIT_AS, &before_) == 0);
    rlimit limit = before_;
    limit.rlim_cur = pages_of_process().reserved + more;
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  }
  ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
};

constexpr std::int64_t huge = std::int64_t{1} << 34;  // 64 GiB of float32

}  // namespace

TEST_CASE("tensors of a scope without values take addresses and no memory") {
  const std::size_t before = pages_of_process().resident, counted = memory_stats(Device{}).allocated;
  {
    const ShapeOnlyScope scope;
    Generator generator(1, 0);
    Tensor a = Tensor::zeros({huge}), b = Tensor::empty({huge});
    fill_normal(b, 0, 1, generator);
    a.copy_from(b);
    const Tensor sum = kernels::add(a, b.clone());
    CHECK(sum.shape() == Shape{huge});
    CHECK(sum.raw() != a.raw());
    CHECK(memory_stats(Device{}).allocated - counted >= 3 * static_cast<std::size_t>(huge) * sizeof(float));
    CHECK(pages_of_process().resident < before + (std::size_t{64} << 20));
  }
  CHECK(memory_stats(Device{}).allocated == counted);
}

TEST_CASE("small tensors keep their values in a scope without values") {
  const ShapeOnlyScope scope;
  Tensor counter = Tensor::full({3}, 7, DType::int64);
  CHECK(counter.clone().data<std::int64_t>()[2] == 7);
  CHECK(Tensor::from(std::vector<float>{1.5F}, {}).item() == 1.5);
  // Results of arithmetic are zero: no host branches on what was in the memory before.
  const Tensor x = Tensor::full({4}, 2);
  CHECK(kernels::sum(x).item() == 0);
  CHECK(kernels::all_finite(x));
}

TEST_CASE("memory freed in a scope without values is given out again") {
  const ShapeOnlyScope scope;
  const void* const first = Tensor::empty({1 << 20}).raw();
  CHECK(Tensor::empty({1 << 20}).raw() == first);
}

TEST_CASE("the operations of products that a scope without values leaves out are counted") {
  const ShapeOnlyScope scope;
  const Tensor a = Tensor::empty({3, 5}), b = Tensor::empty({5, 7});
  Tensor out = Tensor::empty({3, 7});
  kernels::of(a).matmul(a, b, out, {});
  CHECK(operations_left_out() == 2 * 3 * 5 * 7);
  Tensor transposed = Tensor::empty({5, 7});
  kernels::of(a).matmul(a, out, transposed, {.transpose_a = true});
  CHECK(operations_left_out() == 2 * 3 * 5 * 7 + 2 * 3 * 5 * 7);
}

TEST_CASE("a scope without values is its thread's, and ends") {
  {
    const ShapeOnlyScope scope;
    bool elsewhere = true;
    std::thread([&] { elsewhere = shapes_only(); }).join();
    CHECK_FALSE(elsewhere);
    CHECK(shapes_only());
  }
  CHECK_FALSE(shapes_only());
  const Tensor x = Tensor::full({2}, 3);
  CHECK(kernels::sum(x).item() == 6);
}

TEST_CASE("a tensor may outlive its scope without values") {
  Tensor kept;
  {
    const ShapeOnlyScope scope;
    kept = Tensor::empty({1 << 20});
  }
  kept.fill(2);
  CHECK(kernels::sum(kept).item() == 2 << 20);
}

TEST_CASE("a scope without values takes fewer addresses where they are limited") {
  const AddressLimit limit(std::size_t{1} << 30);
  bool has_small = false, is_refused = false;
  std::thread([&] {  // a thread keeps the addresses of its last scope
    const ShapeOnlyScope scope;
    has_small = Tensor::zeros({1 << 20}).defined();
    try {
      Tensor::empty({std::int64_t{1} << 30});
    } catch (const Error& error) {
      is_refused = error.code() == Errc::io;
    }
  })
      .join();
  CHECK(has_small);
  CHECK(is_refused);
}
