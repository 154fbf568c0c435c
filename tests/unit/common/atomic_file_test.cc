#include "common/atomic_file.h"

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

TEST_CASE("a file is replaced atomically and no temporary file is left") {
  testing::TempDir dir;
  write_file_atomically(dir / "a", "one");
  write_file_atomically(dir / "a", std::string("t\0wo", 4));
  CHECK(read_whole_file(dir / "a") == std::string("t\0wo", 4));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a failed write leaves the old content") {
  testing::TempDir dir;
  write_file_atomically(dir / "a", "old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  CHECK_THROWS_AS(write_file_atomically(dir / "a", std::string(10000, 'x')), Error);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(read_whole_file(dir / "a") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a device or a FIFO is written to and stays") {
  testing::TempDir dir;
  std::filesystem::create_symlink("/dev/null", dir / "null");
  write_file_atomically(dir / "null", "gone");
  CHECK(std::filesystem::is_symlink(dir / "null"));
  std::filesystem::create_symlink("/dev/full", dir / "full");
  CHECK_THROWS_WITH(write_file_atomically(dir / "full", "x"), Catch::Contains("No space left on device"));
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(write_file_atomically(dir / "fifo", "x"), Catch::Contains("No such device or address"));
}

TEST_CASE("a missing file is an error that names it") {
  testing::TempDir dir;
  CHECK_THROWS_WITH(read_whole_file(dir / "absent"), Catch::Contains("absent") && Catch::Contains("No such file"));
}
