#include "worker/data/cifar.h"

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

namespace {

const std::vector<Normalization> raw(3);

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a folder of CIFAR-10 files becomes images of three planes, each normalized by itself") {
  TempDir dir;
  CHECK_FALSE(holds_cifar10(dir.path()));
  write_cifar10(dir.path());
  write(dir / "data_batch_2.bin", cifar_record(2, 0, 0, 0) + cifar_record(9, 51, 102, 255));
  CHECK(holds_cifar10(dir.path()));
  const std::vector<Normalization> channels{{0.1F, 0.5F}, {0.2F, 1.0F}, {0.3F, 2.0F}};
  const auto set = load_cifar10(dir.path(), Split::train, channels);
  CHECK(set->size() == 6);
  CHECK(set->layout().input_shape == std::vector<std::int64_t>{3, 32, 32});
  CHECK(set->layout().classes == 10);
  CHECK(set->layout().black == std::vector<float>{(0 - 0.1F) / 0.5F, (0 - 0.2F) / 1.0F, (0 - 0.3F) / 2.0F});
  const auto sample = read_image(*set, 2);  // it is the second record of the second file
  CHECK(sample.label == 9);
  CHECK(std::vector(sample.input.begin(), sample.input.begin() + 1024) ==
        std::vector<float>(1024, (0.2F - 0.1F) / 0.5F));
  CHECK(sample.input[1024] == (0.4F - 0.2F) / 1.0F);
  CHECK(sample.input[3071] == (1.0F - 0.3F) / 2.0F);
  CHECK(load_cifar10(dir.path(), Split::test, channels)->size() == 1);
}

TEST_CASE("a pixel keeps its place") {
  TempDir dir;
  write_cifar10(dir.path());
  std::string record = cifar_record(7, 0, 0, 0);
  record[1 + 1024 + 5 * 32 + 30] = static_cast<char>(255);
  write(dir / "test_batch.bin", record);
  const auto sample = read_image(*load_cifar10(dir.path(), Split::test, raw), 0);
  std::vector<float> expected(3072);
  expected[1024 + 5 * 32 + 30] = 1;
  CHECK(sample.input == expected);
}

TEST_CASE("a damaged or missing CIFAR-10 file is refused by name") {
  TempDir dir;
  write_cifar10(dir.path());
  const auto error_of = [&] {
    try {
      load_cifar10(dir.path(), Split::train, raw);
    } catch (const Error& e) {
      return std::pair(e.code(), std::string(e.what()));
    }
    return std::pair(Errc::timeout, std::string("no error"));
  };
  const std::string path = dir / "data_batch_3.bin";
  write(path, cifar_record(1, 0, 0, 0) + "x");
  CHECK(error_of() == std::pair(Errc::io, path + ": 3074 bytes are no whole number of records of 3073 bytes"));
  write(path, "");
  CHECK(error_of() == std::pair(Errc::io, path + ": 0 bytes are no whole number of records of 3073 bytes"));
  write(path, cifar_record(1, 0, 0, 0) + cifar_record(10, 0, 0, 0));
  CHECK(error_of() == std::pair(Errc::io, path + ": offset 3073: expected a label from 0 to 9, found 10"));
  std::filesystem::remove(path);
  CHECK(error_of() == std::pair(Errc::usage, path + " is missing; scripts/get-data cifar10 fetches it"));
}
