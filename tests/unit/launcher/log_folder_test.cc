#include "launcher/output/log_folder.h"

#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/host_port.h"
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

TEST_CASE("files of an earlier attempt are removed") {
  const testing::TempDir base;
  const LogFolder logs(base.path().string(), "x", "/nowhere");
  std::ofstream(logs.worker_folder(0, 0) / "stale") << "x";
  CHECK(fs::is_empty(logs.worker_folder(0, 0)));
}

TEST_CASE("without a base the folder is temporary, and removed unless it has to be kept") {
  const testing::TempDir temporary;
  const LogFolder logs("", "x", temporary.path());
  CHECK(logs.root().filename().string().starts_with("torchelastic_"));
  logs.remove_if_temporary(true);
  CHECK(fs::exists(logs.root()));
  logs.remove_if_temporary(false);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("a temporary folder for error files has no folders of workers") {
  const testing::TempDir temporary;
  const LogFolder logs("", "x", temporary.path());
  CHECK(logs.worker_folder(2, 1).empty());
  CHECK(logs.attempt_folder(2).empty());
  CHECK(logs.error_file(2, 1) == logs.root() / "error_2_1.json");
}

TEST_CASE("a temporary folder for output has torchrun's layout") {
  const testing::TempDir temporary;
  const LogFolder logs("", "x", temporary.path(), LogFolder::Temporary::kept);
  CHECK(logs.root().parent_path() == logs.temporary());
  CHECK(logs.worker_folder(2, 1) == logs.root() / "attempt_2" / "1");
  CHECK(logs.error_file(2, 1) == logs.root() / "attempt_2" / "1" / "error.json");
}

namespace {

// The temporary folder of an agent that ended without removing it.
fs::path abandoned_folder(const fs::path& temporary, LogFolder::Temporary kind = LogFolder::Temporary::removable) {
  const pid_t agent = ::fork();
  if (agent == 0) {
    const LogFolder logs("", "x", temporary, kind);
    static_cast<void>(logs.worker_folder(0, 0));
    std::ofstream(logs.error_file(0, 0)) << "{}";
    ::_exit(0);
  }
  REQUIRE(::waitpid(agent, nullptr, 0) == agent);
  const auto entry = fs::directory_iterator(temporary);
  REQUIRE(std::distance(fs::begin(entry), fs::end(entry)) == 1);
  return fs::directory_iterator(temporary)->path();
}

}  // namespace

TEST_CASE("the temporary folder of an agent that has ended is removed by the next one") {
  const testing::TempDir temporary;
  const auto abandoned = abandoned_folder(temporary.path());
  const LogFolder next("", "x", temporary.path());
  CHECK_FALSE(fs::exists(abandoned));
  CHECK(fs::exists(next.temporary()));
}

TEST_CASE("a temporary folder with output that the user asked for is not removed by the next agent") {
  const testing::TempDir temporary;
  const auto kept = abandoned_folder(temporary.path(), LogFolder::Temporary::kept);
  const LogFolder next("", "x", temporary.path());
  CHECK(fs::exists(kept));
}

TEST_CASE("only abandoned folders of this host's agents are removed") {
  const testing::TempDir temporary;
  const LogFolder running("", "x", temporary.path());
  const auto with_owner = [&](const char* name, const std::string& host) {
    fs::create_directories(temporary / name);
    std::ofstream(temporary / name / ".ddprun_owner") << host;
    return temporary / name;
  };
  const auto other_host = with_owner("torchelastic_aaaaaaaa", "another-host");
  const auto other_name = with_owner("torchelastic_aaaaaaaaa", local_host_name());
  const auto unmarked = temporary / "torchelastic_bbbbbbbb";  // torchrun's own
  fs::create_directories(unmarked);
  const auto target = with_owner("target", local_host_name());
  const auto link = temporary / "torchelastic_cccccccc";
  fs::create_directory_symlink(target, link);
  const auto abandoned = with_owner("torchelastic_dddddddd", local_host_name());
  const LogFolder next("", "x", temporary.path());
  for (const auto& path : {running.temporary(), other_host, other_name, unmarked, target / ".ddprun_owner"}) {
    INFO(path);
    CHECK(fs::exists(path));
  }
  CHECK(fs::is_symlink(link));
  CHECK_FALSE(fs::exists(abandoned));
}

TEST_CASE("TMPDIR is used where it is a writable folder") {
  const testing::TempDir folder;
  CHECK(temporary_folder(Environment{}) == "/tmp");
  CHECK(temporary_folder(Environment({{"TMPDIR", folder.path().string()}})) == folder.path());
  CHECK(temporary_folder(Environment({{"TMPDIR", (folder / "missing").string()}})) == "/tmp");
}

TEST_CASE("with /dev/null there are no log files, and error files are in a temporary folder that is removed") {
  const testing::TempDir folder;
  const LogFolder logs("/dev/null", "x", folder.path());
  CHECK_FALSE(logs.enabled());
  CHECK(logs.worker_folder(0, 0).empty());
  CHECK(logs.error_file(2, 1) == logs.temporary() / "error_2_1.json");
  CHECK(fs::is_directory(logs.temporary()));
  logs.remove_if_temporary(false);
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("with /dev/null and no temporary folder there are no files at all") {
  const LogFolder logs("/dev/null", "x", "/nowhere");
  CHECK_FALSE(logs.enabled());
  CHECK(logs.temporary().empty());
  CHECK(logs.error_file(0, 0).empty());
}

TEST_CASE("a folder that cannot be created is named") {
  CHECK_THROWS_WITH(LogFolder("/dev/null/x", "x", "/tmp"), "cannot make the log folder /dev/null/x: Not a directory");
}
