#include "worker/data/images.h"

#include "common/environment.h"
#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

namespace {

void write_pair(const TempDir& dir, std::uint32_t images, const std::string& labels) {
  write_compressed(dir / "train-images-idx3-ubyte.gz",
                   idx_bytes({images, 2, 2}, std::string(images * 4, static_cast<char>(51))));
  write_plain(dir / "train-labels-idx1-ubyte", idx_bytes({static_cast<std::uint32_t>(labels.size())}, labels));
}

}  // namespace

TEST_CASE("a folder of IDX files becomes normalized images and labels") {
  TempDir dir;
  write_pair(dir, 3, std::string("\x04\x00\x09", 3));
  const auto set = load_mnist(dir.path(), Split::train, {.mean = 0.1F, .standard_deviation = 0.5F});
  CHECK(set->size() == 3);
  CHECK(set->layout().input_shape == std::vector<std::int64_t>{1, 2, 2});
  CHECK(set->layout().classes == 10);
  const auto sample = read_image(*set, 2);
  CHECK(sample.label == 9);
  CHECK(sample.input == std::vector<float>(4, (51.0F / 255.0F - 0.1F) / 0.5F));
  CHECK_FALSE(find_mnist(dir.path(), Split::test));
}

TEST_CASE("images and labels that do not belong together are refused by name") {
  TempDir dir;
  write_pair(dir, 3, std::string("\x04\x00", 2));
  CHECK_THROWS_WITH(load_mnist(dir.path(), Split::train, {}),
                    (dir / "train-images-idx3-ubyte.gz").string() + " holds 3 images, " +
                        (dir / "train-labels-idx1-ubyte").string() + " holds 2 labels: they do not belong together");
  write_pair(dir, 2, "\x04\x0a");
  CHECK_THROWS_WITH(load_mnist(dir.path(), Split::train, {}),
                    (dir / "train-labels-idx1-ubyte").string() + ": offset 9: expected a label from 0 to 9, found 10");
  CHECK_THROWS_AS(load_mnist(dir.path(), Split::test, {}), Error);
}

TEST_CASE("the real digits read") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  if (!folder) SKIP("DDPRUN_TEST_DATA names no folder with mnist-10k");
  const auto set = load_mnist(std::filesystem::path(*folder) / "mnist-10k", Split::train, mnist_normalization);
  CHECK(set->layout().input_shape == std::vector<std::int64_t>{1, 28, 28});
  std::vector<int> count(10);
  double sum = 0;
  for (std::int64_t i = 0; i < set->size(); ++i) {
    const auto sample = read_image(*set, i);
    ++count[static_cast<std::size_t>(sample.label)];
    for (const auto x : sample.input) sum += x;
  }
  for (const auto n : count) CHECK(n > set->size() / 15);
  CHECK(sum / static_cast<double>(set->size() * 784) == Approx(0.0).margin(0.02));  // the purpose of the normalization
}
