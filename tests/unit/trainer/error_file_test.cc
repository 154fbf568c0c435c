#include "ddprun/worker/trainer/error_file.h"

#include <boost/json.hpp>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

TEST_CASE("the error file has the shape that torchelastic's agents read") {
  TempDir dir;
  const std::string message = "rank 1 said \"no\"\nand left";
  write_error_file(dir / "error.json", message, 1700000000);
  const auto file = boost::json::parse(read_whole_file(dir / "error.json"));
  CHECK(file.at("message").at("message").as_string() == message);
  CHECK(file.at("message").at("extraInfo").at("timestamp").as_string() == "1700000000");
  CHECK(file.at("message").at("extraInfo").at("py_callstack").is_string());
  CHECK_FALSE(file.at("message").at("extraInfo").as_object().contains("consequence"));
  write_error_file(dir / "error.json", message, 1700000000, true);
  CHECK(boost::json::parse(read_whole_file(dir / "error.json")).at("message").at("extraInfo").at("consequence") ==
        true);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);  // nothing left beside it
}

TEST_CASE("an error file that cannot be written is an error naming it") {
  CHECK_THROWS_AS(write_error_file("/nonexistent/error.json", "x", 0), Error);
}
