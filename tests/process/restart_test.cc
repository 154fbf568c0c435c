#include <algorithm>
#include <fstream>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;

TEST_CASE("a failed job is restarted up to --max_restarts times, each attempt with its count") {
  const auto result = run_child(
      command({"--max_restarts=2"}, {"env", "if-attempt=0", "exit=3", "end-if", "if-attempt=1", "raise=9", "end-if"}));
  CHECK(result.code == 0);
  Words counts;
  for (const auto& line : lines_of(result.out))
    if (line.starts_with("TORCHELASTIC_RESTART_COUNT=")) counts.push_back(line.substr(27));
  CHECK(counts == Words{"0", "1", "2"});
  CHECK(result.err.find("failed: exit code 3; restart 1 of 2\n") != std::string::npos);
  CHECK(result.err.find("restart 2 of 2\n") != std::string::npos);
  CHECK(result.err.find("FAILED") == std::string::npos);
}

TEST_CASE("after the last restart the job ends with the last root cause") {
  const auto result = run_child(command(two_workers({"--max_restarts=1"}), {"if-attempt=0", "exit=3", "end-if",
                                                                            "if-rank=1", "exit=4", "end-if", "pause"}));
  CHECK(result.code == 4);
  CHECK(result.err.find("  rank      : 1 (local_rank: 1)\n") != std::string::npos);
}

TEST_CASE("the old workers and their children have ended before new ones start") {
  const TempDir folder;
  const Marker marker;
  Child child(command(two_workers({"--max_restarts=1", "--shutdown_timeout=1"}),
                      {"if-attempt=0", "fork=stubborn", "fork=plain", "if-rank=0", "exit=1", "end-if", "if-attempt=0",
                       "ignore=15", "pause", "end-if", "touch=" + (folder / "${local_rank}").string(),
                       "wait-file=" + (folder / "go").string()}),
              marker.variables());
  const auto both = [&] { return std::filesystem::exists(folder / "0") && std::filesystem::exists(folder / "1"); };
  child.wait_until(both, "second attempt");
  CHECK(marker.processes() == 5);  // ddprun, two guardians, two workers
  std::ofstream(folder / "go").put('\n');
  CHECK(child.wait().code == 0);
  CHECK(marker.processes() == 0);
}
