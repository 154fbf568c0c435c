#include <csignal>
#include <fstream>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("0 when every worker ends with 0") {
  CHECK(run_child(command(two_workers(), {})).code == 0);
}

TEST_CASE("a worker's own exit code is ddprun's") {
  const auto result = run_child(command(two_workers(), {"if-rank=1", "exit=7", "end-if", "pause"}));
  CHECK(result.code == 7);
  CHECK(result.signal_number == 0);
}

TEST_CASE("128 + n for a worker ended by signal n") {
  CHECK(run_child(command(two_workers(), {"if-rank=0", "raise=11", "end-if", "pause"})).code == 128 + SIGSEGV);
  CHECK(run_child(command(two_workers(), {"if-rank=0", "raise=9", "end-if", "pause"})).code == 128 + SIGKILL);
}

TEST_CASE("a failure stops the other worker, and the summary names the root cause alone") {
  const TempDir folder;
  const auto ready = (folder / "ready").string();
  const auto result = run_child(command(two_workers(), {"if-rank=0", "touch=" + ready, "pause", "end-if",
                                                        "wait-file=" + ready, "err=last words\\n", "exit=3"}));
  CHECK(result.code == 3);
  CHECK(contains(result.err, "[ddprun] error: rank 1 (local rank 1, pid "));
  CHECK(contains(result.err, "failed: exit code 3\n"));
  CHECK(contains(result.err, "ddprun-victim FAILED\n"));
  CHECK(contains(result.err, "  <NO_OTHER_FAILURES>\n"));
  CHECK(contains(result.err, "Root Cause (first observed failure):\n[0]:\n"));
  CHECK(contains(result.err, "  rank      : 1 (local_rank: 1)\n"));
  CHECK(contains(result.err, "The end of rank 1's standard error:\n  last words\n"));
}

TEST_CASE("an error file is read, named and kept") {
  const auto result = run_child(
      command(two_workers(), {"if-rank=1", "error-file={\"message\": \"the disk is full\", \"timestamp\": 1700000000}",
                              "exit=4", "end-if", "pause"}));
  CHECK(result.code == 4);
  CHECK(contains(result.err, "  traceback : the disk is full\n"));
  const auto at = result.err.find("  error_file: ");
  REQUIRE(at != std::string::npos);
  const auto path = result.err.substr(at + 14, result.err.find('\n', at) - at - 14);
  CHECK(std::filesystem::exists(path));
  // <temporary folder>/<run>/attempt_0/1/error.json
  std::filesystem::remove_all(std::filesystem::path(path).parent_path().parent_path().parent_path().parent_path());
}

TEST_CASE("a program that the kernel does not execute is a fault with its cause") {
  // It passes every check but the kernel's.
  const TempDir folder;
  const auto junk = (folder / "junk").string();
  std::ofstream(junk) << "neither a script nor a binary\n";
  std::filesystem::permissions(junk, std::filesystem::perms::owner_all);
  const auto refused = run_child({DDPRUN_PROGRAM, "--nproc_per_node=2", junk});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "cannot execute " + junk + ": Exec format error"));
}
