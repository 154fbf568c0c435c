#include "worker/comm/memory/shared_segment.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::comm;

TEST_CASE("memory of ranks has no name, is for its user alone, and shows the other what one writes") {
  const auto own = SharedSegment::create(4096);
  struct stat info {};
  REQUIRE(::fstat(own.descriptor(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK(info.st_nlink == 0);
  const auto other = SharedSegment::open(own.address(), 4096);
  own.data()[17] = std::byte{42};
  CHECK(other.data()[17] == std::byte{42});
}

TEST_CASE("what is no memory of a rank is not mapped, whatever the store says") {
  const testing::TempDir folder;
  const auto file = folder / "file";
  std::ofstream(file) << std::string(4096, 'x');
  const UniqueFd opened(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  const auto address = [](int fd) { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd); };
  for (const auto& wrong : {file.string(), address(opened.get()), address(unsealed.get()), std::string("/dev/zero"),
                            address(unsealed.get()) + "/../../exe", std::string()}) {
    INFO(wrong);
    CHECK_THROWS_AS(SharedSegment::open(wrong, 4096), Error);
  }
  const auto segment = SharedSegment::create(4096);
  CHECK_THROWS_AS(SharedSegment::open(segment.address(), 8192), Error);
}
