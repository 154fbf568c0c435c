#include "common/mapped_file.h"

#include <fstream>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

TEST_CASE("a mapped file shows the file's bytes, also after a move") {
  const testing::TempDir dir;
  std::ofstream(dir / "file") << "some bytes";
  MappedFile file(dir / "file");
  const auto* memory = file.bytes().data();
  const MappedFile moved = std::move(file);
  CHECK(moved.bytes().data() == memory);
  CHECK(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()) == "some bytes");
  std::ofstream(dir / "empty").flush();
  CHECK(MappedFile(dir / "empty").bytes().empty());
}

TEST_CASE("what cannot be mapped is named") {
  const testing::TempDir dir;
  CHECK_THROWS_WITH(MappedFile(dir / "none"), Catch::Contains("none: No such file"));
  CHECK_THROWS_WITH(MappedFile(dir.path()), Catch::Contains("is not a file"));
}
