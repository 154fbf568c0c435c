#include "ddprun/launcher/output/log_folder.h"

#include <fstream>

#include "ddprun/common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
namespace fs = std::filesystem;

TEST_CASE("the layout is torchrun's") {
  const testing::TempDir base;
  const LogFolder logs((base / "logs").string(), "my/job", "/nowhere");
  CHECK(logs.root().parent_path() == base / "logs");
  const auto name = logs.root().filename().string();
  CHECK(name.starts_with("my_job_"));
  CHECK(name.size() == 7 + 8);
  CHECK(logs.worker_folder(2, 11) == logs.root() / "attempt_2" / "11");
  CHECK(fs::is_directory(logs.root() / "attempt_2" / "11"));
  logs.remove_if_temporary(false);
  CHECK(fs::exists(logs.root()));
}

TEST_CASE("two runs of one id have two folders") {
  const testing::TempDir base;
  CHECK(LogFolder(base.path().string(), "x", "/nowhere").root() !=
        LogFolder(base.path().string(), "x", "/nowhere").root());
}

TEST_CASE("what an earlier attempt left is removed") {
  const testing::TempDir base;
  const LogFolder logs(base.path().string(), "x", "/nowhere");
  std::ofstream(logs.worker_folder(0, 0) / "stale") << "x";
  CHECK(fs::is_empty(logs.worker_folder(0, 0)));
}

TEST_CASE("without a base the folder is temporary, and goes unless it is to be kept") {
  const testing::TempDir temporary;
  const LogFolder logs("", "x", temporary.path());
  CHECK(logs.root().parent_path().filename().string().starts_with("torchelastic_"));
  logs.remove_if_temporary(true);
  CHECK(fs::exists(logs.root()));
  logs.remove_if_temporary(false);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("/dev/null means no files") {
  const LogFolder logs("/dev/null", "x", "/nowhere");
  CHECK_FALSE(logs.enabled());
  CHECK(logs.worker_folder(0, 0).empty());
}

TEST_CASE("a folder that cannot be made is named") {
  CHECK_THROWS_WITH(LogFolder("/dev/null/x", "x", "/tmp"), "cannot make the log folder /dev/null/x: Not a directory");
}
