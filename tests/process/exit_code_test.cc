#include <csignal>
#include <fstream>

#include "common/atomic_file.h"
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

TEST_CASE("a failure stops the other worker, and the summary names only the root cause") {
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
  const TempDir temporary;  // its own, since the next ddprun removes what this one keeps
  const auto result = run_child(
      command(two_workers(), {"if-rank=1", "error-file={\"message\": \"the disk is full\", \"timestamp\": 1700000000}",
                              "exit=4", "end-if", "pause"}),
      {{"TMPDIR", temporary.path().string()}});
  CHECK(result.code == 4);
  CHECK(contains(result.err, "  traceback : the disk is full\n"));
  const auto at = result.err.find("  error_file: ");
  REQUIRE(at != std::string::npos);
  const auto path = result.err.substr(at + 14, result.err.find('\n', at) - at - 14);
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("an error file that ddprun cannot read at once is named, and the failure is reported as without it") {
  const auto [made, reason] = GENERATE(std::pair("mkfifo \"$f\"", "it is not a regular file"),
                                       std::pair("ln -s /dev/zero \"$f\"", "it is not a regular file"),
                                       std::pair("mkdir \"$f\"", "it is not a regular file"),
                                       std::pair("truncate -s 100M \"$f\"", "it has more than 1 MiB"),
                                       std::pair("echo '{\"message\": \"x\"}' > \"$f\"; mkfifo \"$f.label\"", nullptr));
  CAPTURE(made);
  const TempDir temporary, folder;
  const auto scheduler = (folder / "error.json").string();
  const auto result = run_child({DDPRUN_PROGRAM, "--standalone", "--event_log_handler=console", "/bin/sh", "-c",
                                 std::string("f=$TORCHELASTIC_ERROR_FILE; ") + made + "; exit 3"},
                                {{"TMPDIR", temporary.path().string()}, {"TORCHELASTIC_ERROR_FILE", scheduler}});
  CHECK(result.code == 3);
  CHECK(contains(result.err, " failed: exit code 3"));
  if (reason) {
    CHECK(contains(result.err, "  traceback : (the error file: cannot read "));
    CHECK(contains(result.err, std::string(": ") + reason + ")\n"));
  }
  CHECK(contains(ddprun::read_whole_file(scheduler), "\"errorCode\":3"));
}

TEST_CASE("an error file of ddprun that cannot be written is a warning that names it, also if the job succeeds") {
  const auto success = run_child(command({}, {}), {{"TORCHELASTIC_ERROR_FILE", "/nonexistent/error.json"}});
  CHECK(success.code == 0);
  CHECK(success.err ==
        "[ddprun] warning: TORCHELASTIC_ERROR_FILE = /nonexistent/error.json cannot be written: No such file or "
        "directory; a failure of the job will not be there\n");
  const auto result = run_child(command({}, {"exit=3"}), {{"TORCHELASTIC_ERROR_FILE", "/nonexistent/error.json"}});
  CHECK(result.code == 3);
  CHECK(contains(
      result.err,
      "[ddprun] warning: the job's failure is not in TORCHELASTIC_ERROR_FILE: cannot create /nonexistent/error.json"));
}

TEST_CASE("a usage error of the workers is one line and exit code 2, without a restart") {
  const TempDir temporary;
  const Words verbs{
      "error-file={\"message\": {\"message\": \"a.cfg:3: no such key\", \"extraInfo\": {\"usage_error\": true}}}",
      "exit=2"};
  const auto result = run_child(command({"--standalone", "--nproc_per_node=4", "--max_restarts=3"}, verbs),
                                {{"TMPDIR", temporary.path().string()}});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(result.err == "[ddprun] error: a.cfg:3: no such key\n");
  CHECK(std::filesystem::is_empty(temporary.path()));
}

TEST_CASE("a usage error stops the workers that did not report it") {
  const Marker marker;
  const auto result = run_child(
      command(two_workers(),
              {"if-rank=0", "pause", "end-if",
               "error-file={\"message\": {\"message\": \"no such file\", \"extraInfo\": {\"usage_error\": true}}}",
               "exit=2"}),
      marker.variables());
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun] error: no such file\n");
  CHECK(marker.processes() == 0);
}

TEST_CASE("exit code 2 alone is a failure like any other") {
  const auto result = run_child(command(two_workers(), {"if-rank=0", "pause", "end-if", "exit=2"}));
  CHECK(result.code == 2);
  CHECK(contains(result.err, "ddprun-victim FAILED\n"));
}

TEST_CASE("a low limit of open files ends ddprun at once and is named") {
  for (const int limit : {12, 14, 20, 29}) {
    CAPTURE(limit);
    const auto result =
        run_child({"/bin/sh", "-c",
                   "ulimit -n " + std::to_string(limit) +
                       "; exec " DDPRUN_PROGRAM " --standalone --nproc_per_node=1 " VICTIM_PROGRAM " exit=0"});
    CHECK(result.code == 1);
    CHECK(result.err ==
          "[ddprun] error: too many open files: ddprun needs 38 descriptors for 1 worker, and the limit is " +
              std::to_string(limit) + " (ulimit -n)\n");
  }
}

TEST_CASE("the limit of open files that ddprun asks for is enough") {
  const auto result =
      run_child({"/bin/sh", "-c",
                 "ulimit -n 56; exec " DDPRUN_PROGRAM " --standalone --nproc_per_node=4 " VICTIM_PROGRAM " exit=0"});
  INFO(result.err);
  CHECK(result.code == 0);
}

TEST_CASE("a program that the kernel does not execute is a fault with its cause") {
  // ddprun's checks accept it, and the kernel refuses it.
  const TempDir folder;
  const auto junk = (folder / "junk").string();
  std::ofstream(junk) << "neither a script nor a binary\n";
  std::filesystem::permissions(junk, std::filesystem::perms::owner_all);
  const auto refused = run_child({DDPRUN_PROGRAM, "--nproc_per_node=2", junk});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "cannot execute " + junk + ": Exec format error"));
}
