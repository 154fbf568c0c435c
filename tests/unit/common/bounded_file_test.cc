#include "common/bounded_file.h"

#include <fstream>
#include <future>
#include <sys/stat.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

TEST_CASE("a regular file up to the limit is read whole, a larger one is refused") {
  const testing::TempDir folder;
  const auto path = folder / "file";
  std::ofstream(path) << std::string(100'000, 'x');
  CHECK(read_regular_file(path, 100'000).size() == 100'000);
  CHECK_THROWS_WITH(read_regular_file(path, 99'999), "cannot read " + path.string() + ": it has more than 99999 bytes");
  CHECK(read_front_of_file(path, 10) == std::string(10, 'x'));
  std::ofstream(path, std::ios::app) << "end";
  CHECK(read_end_of_file(path, 4) == "xend");
  CHECK(read_end_of_file(path, 200'000).size() == 100'003);
}

TEST_CASE("what is not a regular file is refused at once, also behind a link") {
  const testing::TempDir folder;
  const auto path = folder / "file";
  const auto kind = GENERATE("fifo", "device", "folder");
  CAPTURE(kind);
  if (kind == std::string("fifo")) REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  if (kind == std::string("device")) std::filesystem::create_symlink("/dev/zero", path);
  if (kind == std::string("folder")) std::filesystem::create_directory(path);
  CHECK_THROWS_WITH(read_regular_file(path, 1000), "cannot read " + path.string() + ": it is not a regular file");
  CHECK(read_front_of_file(path, 1000).empty());
  CHECK(read_end_of_file(path, 1000).empty());
}

TEST_CASE("a missing file is an error with its cause") {
  CHECK_THROWS_WITH(read_regular_file("/no/such", 10), "cannot open /no/such: No such file or directory");
  CHECK_THROWS_WITH(read_named_file("/no/such", 10), "cannot open /no/such: No such file or directory");
  CHECK(read_front_of_file("/no/such", 10).empty());
}

TEST_CASE("a file that the user names may be a FIFO, and one without an end is refused") {
  const testing::TempDir folder;
  const auto path = folder / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto writer = std::async(std::launch::async, [&] { std::ofstream(path) << "a = 1\n"; });
  CHECK(read_named_file(path, 1000) == "a = 1\n");
  CHECK_THROWS_WITH(read_named_file("/dev/zero", 1 << 20), "cannot read /dev/zero: it has more than 1 MiB");
}
