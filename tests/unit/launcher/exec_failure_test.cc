#include "launcher/workers/exec_failure.h"

#include <cerrno>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

namespace {

std::string why(const std::filesystem::path& file, int error_number) {
  const auto text = exec_failure_text(file, error_number);
  const auto begin = "cannot execute " + file.string() + ": ";
  REQUIRE(text.starts_with(begin));
  return text.substr(begin.size());
}

}  // namespace

TEST_CASE("a failed exec is explained by its errno and the file") {
  const testing::TempDir folder;
  const auto script = folder / "script";
  CHECK(why(folder / "none", ENOENT) == "No such file or directory");
  std::ofstream(script) << "#! /no/such/interpreter -x\necho\n";
  CHECK(why(script, ENOENT) == "its interpreter /no/such/interpreter (line 1) does not exist");
  CHECK(why(script, EACCES) == "Permission denied: it is not executable (chmod +x)");
  std::ofstream(script) << "#!/bin/sh\r\necho\r\n";
  CHECK(why(script, ENOENT) ==
        "its interpreter /bin/sh (line 1) does not exist: the file has Windows line endings (CR LF)");
  std::ofstream(script) << "\x7f"
                        << "ELF";
  CHECK_THAT(why(script, ENOENT), Catch::Contains("loader"));
  CHECK_THAT(why(script, ENOEXEC), Catch::StartsWith("Exec format error: neither"));
  CHECK(why(folder.path(), EACCES) == "it is a folder");
  CHECK(why(script, E2BIG) == "Argument list too long");
}
