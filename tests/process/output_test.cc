#include <algorithm>
#include <fstream>

#include "ddprun/common/atomic_file.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;
namespace fs = std::filesystem;

namespace {

Words sorted_lines(const std::string& text) {
  auto lines = lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

fs::path only_entry(const fs::path& folder) {
  const auto entries = fs::directory_iterator(folder);
  REQUIRE(std::distance(fs::begin(entries), fs::end(entries)) == 1);
  return fs::directory_iterator(folder)->path();
}

}  // namespace

TEST_CASE("lines of several workers are whole and carry the rank, also the last one without an end") {
  const auto result = run_child(command(two_workers({"--role=r"}), {"out=a", "out=b\\nend", "err=e\\n"}));
  CHECK(sorted_lines(result.out) == Words{"[r0]:ab", "[r0]:end", "[r1]:ab", "[r1]:end"});
  CHECK(sorted_lines(result.err) == Words{"[r0]:e", "[r1]:e"});
}

TEST_CASE("a single worker's output passes as it is") {
  const auto result = run_child(command({}, {"out=a\\rb", "err=x"}));
  CHECK(result.out == "a\rb");
  CHECK(result.err == "x");
}

TEST_CASE("redirects and tee, with torchrun's layout of files") {
  const TempDir folder;
  const auto logs = folder / "logs";
  const auto result =
      run_child(command(two_workers({"--log-dir", logs.string(), "-r", "0:3", "-t1:1", "--rdzv-id=job"}),
                        {"out=o${local_rank}\\n", "err=e${local_rank}\\n"}));
  CHECK(result.out == "[default1]:o1\n");
  CHECK(result.err.find("[default1]:e1\n") != std::string::npos);
  CHECK(result.err.find("e0") == std::string::npos);
  const auto run = only_entry(logs);
  CHECK(run.filename().string().starts_with("job_"));
  const auto read = [&](const char* name) { return ddprun::read_whole_file(run / "attempt_0" / name); };
  CHECK(read("0/stdout.log") == "o0\n");
  CHECK(read("0/stderr.log") == "e0\n");
  CHECK(read("1/stdout.log") == "o1\n");
  CHECK_FALSE(fs::exists(run / "attempt_0" / "1" / "stderr.log"));
}

TEST_CASE("the end of standard error is reported also when it went to a file") {
  const TempDir folder;
  const auto result =
      run_child(command({"--log_dir=" + folder.path().string(), "--redirects=3"}, {"err=why\\n", "exit=5"}));
  CHECK(result.code == 5);
  CHECK(result.err.find("The end of rank 0's standard error:\n  why\n") != std::string::npos);
}

TEST_CASE("no temporary folder is left of a job that went well") {
  const TempDir temporary;
  auto variables = Variables{{"TMPDIR", temporary.path().string()}};
  CHECK(run_child(command(two_workers(), {"out=x"}), variables).code == 0);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("a terminal that takes nothing does not keep ddprun from stopping the job") {
  // Nobody reads the pipes until the end: 64 KiB fill them, ddprun's queue fills, the workers wait.
  const Marker marker;
  const TempDir folder;
  Child child(command(two_workers(), {"touch=" + (folder / "${local_rank}").string(), "flood"}), marker.variables());
  while (!fs::exists(folder / "0") || !fs::exists(folder / "1")) ::usleep(2000);
  ::usleep(50'000);  // not needed for the result: lets the pipes fill, so that more often the hard case is tried
  child.signal(SIGTERM);
  while (marker.processes() > 1) ::usleep(2000);  // workers are gone while the pipes are full
  CHECK(child.wait().code == 128 + SIGTERM);
}
