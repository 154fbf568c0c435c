#include "worker/data/numbers.h"

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::data;
using namespace ddprun::testing;

TEST_CASE("each line of a CSV file is a sample") {
  TempDir dir;
  const SampleLayout layout{.input_shape = {3}, .classes = 2};
  write_plain(dir / "x.csv", "1,2,3\n-0.5 , 1e-3,\t7\r\n4,5,6");
  const auto set = load_csv(dir / "x.csv", layout);
  CHECK(set->size() == 3);
  CHECK(read_image(*set, 1).input == std::vector<float>{-0.5F, 1e-3F, 7});
  CHECK(read_image(*set, 2).input == std::vector<float>{4, 5, 6});
  CHECK(read_image(*set, 2).label == 0);
}

TEST_CASE("a CSV file that does not fit is refused with file and line") {
  TempDir dir;
  const std::string path = dir / "x.csv";
  const auto error_of = [&](const std::string& text) -> std::string {
    write_plain(path, text);
    try {
      load_csv(path, {.input_shape = {2}});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error_of("1,2\n1,2,3\n") == path + ":2: expected 2 numbers, found 3");
  CHECK(error_of("1,2\n\n1,2\n") == path + ":2: expected 2 numbers, found 0");
  CHECK(error_of("a,b\n") == path + ":1: 'a' is no number");
  CHECK(error_of("1,nan\n") == path + ":1: 'nan' is no number");
  CHECK(error_of("1,2x\n") == path + ":1: '2x' is no number");
  CHECK(error_of("1,,2\n") == path + ":1: '' is no number");
  CHECK(error_of("") == path + ": the file is empty");
  CHECK(error_of("1,2\n") == "no error");
  CHECK_THROWS_WITH(load_csv(path, {.input_shape = {2}, .input_dtype = DType::int64}),
                    path + ": the inputs are int64, not numbers");
}
