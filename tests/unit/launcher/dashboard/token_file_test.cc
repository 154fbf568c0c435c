#include "launcher/dashboard/token_file.h"

#include <fstream>
#include <sys/stat.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::dashboard;

TEST_CASE("a token file is made once, for its owner alone, and then read") {
  const testing::TempDir folder;
  const auto file = folder / "token";
  const auto token = token_in(file);
  CHECK(token.size() == 32);
  CHECK(token_in(file) == token);
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  std::ofstream(file) << "0123456789abcdefX";
  CHECK(token_in(file) == "0123456789abcdefX");
}

TEST_CASE("a token file that others may read, or without a token, is refused") {
  const testing::TempDir folder;
  const auto file = folder / "token";
  token_in(file);
  ::chmod(file.c_str(), 0640);
  CHECK_THROWS_WITH(token_in(file), Catch::Contains("has to be a file of this user with mode 0600"));
  ::chmod(file.c_str(), 0600);
  for (const auto* text : {"", "short", "0123456789abcdef\r\nSet-Cookie: x"}) {
    CAPTURE(text);
    std::ofstream(file) << text;
    CHECK_THROWS_WITH(token_in(file), Catch::Contains("expected 16 to 128 letters and digits"));
  }
  std::ofstream(file) << std::string(129, 'a');
  CHECK_THROWS_AS(token_in(file), Error);
  CHECK_THROWS_WITH(token_in(folder / "none" / "token"), Catch::Contains("cannot create"));
  CHECK_THROWS_AS(token_in("/dev/null"), Error);
}
