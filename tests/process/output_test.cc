#include <algorithm>
#include <csignal>
#include <fstream>

#include "common/atomic_file.h"
#include "common/host_port.h"
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

TEST_CASE("lines of several workers are whole and carry the rank, also a last line without an end") {
  const auto result = run_child(command(two_workers({"--role=r"}), {"out=a", "out=b\\nend", "err=e\\n"}));
  CHECK(sorted_lines(result.out) == Words{"[r0]:ab", "[r0]:end", "[r1]:ab", "[r1]:end"});
  CHECK(sorted_lines(result.err) == Words{"[r0]:e", "[r1]:e"});
}

TEST_CASE("a job that succeeds prints nothing of its own") {
  const auto result = run_child(command(two_workers(), {"exit=0"}), {{"LOGLEVEL", ""}});
  CHECK(result.code == 0);
  CHECK(result.out.empty());
  CHECK(result.err.empty());
}

TEST_CASE("a single worker's output is passed on unchanged") {
  const auto result = run_child(command({}, {"out=a\\rb", "err=x"}));
  CHECK(result.out == "a\rb");
  CHECK(result.err == "x");
}

TEST_CASE("a single worker learns that nobody reads its output any more, as without ddprun") {
  Child child(command({}, {"flood"}));
  child.wait_for_out("x\n");
  child.leave_out();
  CHECK(child.wait().code == 128 + SIGPIPE);
}

TEST_CASE("output of several workers that cannot be written is one error, and the exit code is 1") {
  Words line{"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh"};
  for (const auto& word : command(two_workers(), {"out=a\\n", "out=b\\n", "exit=0"})) line.push_back(word);
  const auto result = run_child(line);
  CHECK(result.code == 1);
  CHECK(result.err == "[ddprun] error: cannot write to standard output: No space left on device\n");
}

TEST_CASE("the exit code of a failed worker is kept though output cannot be written") {
  Words line{"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh"};
  for (const auto& word : command(two_workers(), {"out=a\\n", "exit=3"})) line.push_back(word);
  CHECK(run_child(line).code == 3);
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

TEST_CASE("local ranks above 9 can be redirected and selected") {
  const TempDir folder;
  const auto logs = folder / "logs";
  const auto result = run_child(command({"--standalone", "--nproc_per_node=12", "--log_dir=" + logs.string(),
                                         "--redirects=11:1", "--local-ranks-filter=10,11"},
                                        {"out=o${local_rank}\\n"}));
  CHECK(result.out == "[default10]:o10\n");
  CHECK(ddprun::read_whole_file(only_entry(logs) / "attempt_0/11/stdout.log") == "o11\n");
}

TEST_CASE(
    "ranks that are not shown: tee writes files only, other output is dropped, a failure shows the end of stderr") {
  const TempDir folder;
  const auto logs = folder / "logs";
  const Words verbs{"out=o${local_rank}\\n", "if-rank=0", "err=why\\n", "exit=3", "end-if", "pause"};
  const auto result =
      run_child(command(two_workers({"--log_dir=" + logs.string(), "-t", "1", "--local_ranks_filter=1"}), verbs));
  CHECK(result.code == 3);
  CHECK(result.out.find("o0") == std::string::npos);
  CHECK(ddprun::read_whole_file(only_entry(logs) / "attempt_0/0/stdout.log") == "o0\n");
  CHECK(result.err.find("[default0]:") == std::string::npos);
  CHECK(result.err.find("The end of rank 0's standard error:\n  why\n") != std::string::npos);
}

TEST_CASE("tee'd lines that match a filter are copied to one file for all ranks") {
  const TempDir folder;
  const auto logs = folder / "logs";
  const auto result =
      run_child(command(two_workers({"--log_dir=" + logs.string(), "--tee=0:3,1:1",
                                     "--duplicate-stdout-filters=loss,a,,b", "--duplicate-stderr-filters=warn"}),
                        {"out=loss ${local_rank}\\nstep\\na,b\\na\\nlast loss", "err=warn ${local_rank}\\n"}));
  CHECK(result.code == 0);
  const auto attempt = only_entry(logs) / "attempt_0";
  CHECK(sorted_lines(ddprun::read_whole_file(attempt / "filtered_stdout.log")) ==
        Words{"[default0]:a,b", "[default0]:last loss", "[default0]:loss 0", "[default1]:a,b", "[default1]:last loss",
              "[default1]:loss 1"});
  CHECK(ddprun::read_whole_file(attempt / "filtered_stderr.log") == "[default0]:warn 0\n");
  CHECK(result.out.find("[default1]:step\n") != std::string::npos);
}

TEST_CASE("the prefix of lines follows torchrun's template") {
  const auto result = run_child(command(two_workers({"--role=r"}), {"out=a\\n"}),
                                {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${role_name} ${rank}/$local_rank> "}});
  CHECK(sorted_lines(result.out) == Words{"r 0/0> a", "r 1/1> a"});
}

TEST_CASE("the prefix template comes from the option, PET_LOG_LINE_PREFIX_TEMPLATE or torchrun's older variable") {
  const Variables both{{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "old "}, {"PET_LOG_LINE_PREFIX_TEMPLATE", "pet "}};
  const auto line = [](const Words& options, const Variables& variables) {
    const auto out = run_child(command(two_workers(options), {"if-rank=1", "out=a\\n", "end-if"}), variables).out;
    return out;
  };
  CHECK(line({"--log-line-prefix-template=${hostname}:${rank} "}, both) == ddprun::local_host_name() + ":1 a\n");
  CHECK(line({}, both) == "pet a\n");
  CHECK(line({"--log_line_prefix_template="}, {}) == "[default1]:a\n");
}

TEST_CASE("the end of standard error is reported also when it went to a file") {
  const TempDir folder;
  const auto result =
      run_child(command({"--log_dir=" + folder.path().string(), "--redirects=3"}, {"err=why\\n", "exit=5"}));
  CHECK(result.code == 5);
  CHECK(result.err.find("The end of rank 0's standard error:\n  why\n") != std::string::npos);
}

TEST_CASE("a worker that replaces its log file by a FIFO does not stop ddprun") {
  const TempDir folder;
  const auto result =
      run_child({DDPRUN_PROGRAM, "--standalone", "--redirects=3", "--log_dir=" + folder.path().string(), "/bin/sh",
                 "-c", "f=$(dirname \"$TORCHELASTIC_ERROR_FILE\")/stderr.log; rm \"$f\"; mkfifo \"$f\"; exit 3"});
  CHECK(result.code == 3);
  CHECK(result.err.find(" failed: exit code 3\n") != std::string::npos);
}

TEST_CASE("a TMPDIR that cannot be used is named in a warning, and /tmp is used") {
  const TempDir folder;
  const auto file = (folder / "file").string();
  std::ofstream(file) << "x";
  for (const auto& unusable : {(folder / "missing").string(), file}) {
    const auto result = run_child(command(two_workers(), {"if-rank=0", "env", "end-if"}), {{"TMPDIR", unusable}});
    CHECK(result.code == 0);
    CHECK(result.err == "[ddprun] warning: TMPDIR = " + unusable + " is not a folder; using /tmp\n");
    CHECK(result.out.find("TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_") != std::string::npos);
  }
}

TEST_CASE("the folder of a failed job is in TMPDIR, and the next job removes it") {
  const TempDir temporary;
  const auto variables = Variables{{"TMPDIR", temporary.path().string()}};
  const auto failed = run_child(command({}, {"error-file={\"message\": \"boom\"}", "exit=3"}), variables);
  CHECK(failed.code == 3);
  const auto folder = only_entry(temporary.path());
  CHECK(failed.err.find("  error_file: " + folder.string() + "/") != std::string::npos);
  CHECK(run_child(command({}, {}), variables).code == 0);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("the folder of a running job and output that was asked for are not removed by another job") {
  const TempDir temporary, files;
  const auto variables = Variables{{"TMPDIR", temporary.path().string()}};
  CHECK(run_child(command({"--redirects=1"}, {"out=kept"}), variables).code == 0);
  const auto kept = only_entry(temporary.path());
  const auto up = (files / "up").string(), done = (files / "done").string();
  Child running(command({}, {"touch=" + up, "wait-file=" + done, "error-file={}", "exit=3"}), variables);
  running.wait_until([&] { return fs::exists(up); }, "worker");
  CHECK(run_child(command({}, {}), variables).code == 0);
  std::ofstream(done).put('\n');
  const auto result = running.wait();
  CHECK(result.code == 3);
  CHECK(result.err.find("(the error file is not valid JSON of torchrun's form)") != std::string::npos);
  CHECK(fs::exists(kept));
}

TEST_CASE("no temporary folder is left of a job that succeeded") {
  const TempDir temporary;
  auto variables = Variables{{"TMPDIR", temporary.path().string()}};
  CHECK(run_child(command(two_workers(), {"out=x"}), variables).code == 0);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("a terminal that accepts no output does not prevent ddprun from stopping the job") {
  // The pipes are not read until the end: 64 KiB fill them, ddprun's queue fills, the workers block.
  const Marker marker;
  const TempDir folder;
  Child child(command(two_workers(), {"touch=" + (folder / "${local_rank}").string(), "flood"}), marker.variables());
  while (!fs::exists(folder / "0") || !fs::exists(folder / "1")) ::usleep(2000);
  ::usleep(50'000);  // does not change the result: fills the pipes, so that the blocked case is tested more often
  child.signal(SIGTERM);
  while (marker.processes() > 1) ::usleep(2000);  // the workers end while the pipes are full
  CHECK(child.wait().code == 128 + SIGTERM);
}
