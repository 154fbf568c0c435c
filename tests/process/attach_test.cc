#include <csignal>
#include <fstream>

#include "common/host_port.h"
#include "tests/process/launch.h"
#include "tests/process/machine.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// ddprun attach: the output of one rank of a running job, and signals to it.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Words before{"out=before ${local_rank}\\n", "err=warned ${local_rank}\\n"};

}  // namespace

TEST_CASE("attach shows the last lines of one rank, then what it writes, and ends with the job's exit code") {
  const Machine machine;
  auto job = machine.start(two_workers(), before, {"out=after ${local_rank}\\n", "if-rank=1", "exit=7", "end-if"});
  job.wait_until([&] { return contains(job.out(), "before 1") && contains(job.err(), "warned 1"); }, "output");
  auto attached = machine.attach({"1"});
  attached.wait_for_out("before 1\n");
  machine.release();
  const auto result = attached.wait();
  CHECK(result.code == 7);
  CHECK(result.out == "before 1\nafter 1\n");
  CHECK(result.err == "warned 1\n");
  CHECK(job.wait().code == 7);
}

TEST_CASE("attach shows a single worker, one that the terminal does not show, and one that writes to files") {
  const Machine machine;
  const TempDir logs;
  Words options = GENERATE(Words{"--nproc_per_node=1"}, Words{"--nproc_per_node=2", "--local_ranks_filter=1"},
                           Words{"--nproc_per_node=2", "-r", "3"}, Words{"--nproc_per_node=2", "-t", "3"});
  options.push_back("--log_dir=" + logs.path().string());
  CAPTURE(options);
  auto job = machine.start(options, before, {"out=after ${local_rank}\\n"});
  job.wait_until([&] { return machine.exists("up0"); }, "the worker");
  auto attached = machine.attach({"0"});
  attached.wait_for_out("before 0\n");
  attached.wait_for_err("warned 0\n");
  machine.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "before 0\nafter 0\n");
  CHECK(result.err == "warned 0\n");
  CHECK(job.wait().code == 0);
}

TEST_CASE("attach says which stream it cannot show") {
  const Machine machine;
  auto job = machine.start(two_workers({"-r", "1", "--log_dir=/dev/null"}), before, {});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  auto attached = machine.attach({"0"});
  attached.wait_for_err("rank 0's standard output is not shown: it is /dev/null\n");
  attached.wait_for_err("warned 0\n");
  machine.release();
  CHECK(attached.wait().out.empty());
  job.wait();
}

TEST_CASE("attach follows a rank through a restart") {
  const Machine machine;
  const TempDir logs;
  Words options{"--max_restarts=1"};
  if (GENERATE(false, true)) options.insert(options.end(), {"-r", "3", "--log_dir=" + logs.path().string()});
  CAPTURE(options);
  auto job = machine.start(two_workers(options), {"out=attempt\\n"}, {"if-attempt=0", "exit=3"});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  auto attached = machine.attach({"0"});
  attached.wait_for_out("attempt\n");
  machine.release();
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "attempt\nattempt\n");
  CHECK(job.wait().code == 0);
}

TEST_CASE("a client that does not read delays no worker, and is told how much it has missed") {
  const Machine machine;
  Words much;
  for (int i = 0; i < 16; ++i) much.push_back("out=" + std::string(100'000, 'x') + "\\n");
  much.insert(much.end(), {"touch=" + machine.file("written${local_rank}"), "wait-file=" + machine.file("end")});
  much.emplace_back("out=last\\n");
  auto job = machine.start(two_workers(), before, much);
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  auto attached = machine.attach({"0"});
  attached.wait_for_out("before 0\n");
  attached.signal(SIGSTOP);
  machine.release();
  job.wait_until([&] { return machine.exist("written", 2); }, "the end of the output");
  attached.signal(SIGCONT);
  // The output is more than a socket holds, so that the agent's queue has space again.
  attached.wait_until([&] { return attached.out().size() > 280'000; }, "the output");
  std::ofstream(machine.file("end")).put('\n');
  const auto result = attached.wait();
  CHECK(result.code == 0);
  CHECK(contains(result.err, "bytes of rank 0's output are left out here: they were not read in time"));
  CHECK(result.out.ends_with("last\n"));
  CHECK(result.out.size() < 1'600'000);
  CHECK(job.wait().code == 0);
}

TEST_CASE("what a rank wrote long ago is not kept, and the first line that is shown is whole") {
  const Machine machine;
  Words lines;
  for (int i = 0; i < 100; ++i) lines.push_back("out=" + std::string(999, 'a') + "\\n");
  auto job = machine.start(two_workers(), lines, {"pause"});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  auto attached = machine.attach({"0"});
  attached.wait_for_out("a\n");
  job.signal(SIGTERM);
  const auto result = attached.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(result.out.size() == 16'000);
  job.wait();
}

TEST_CASE("attach --signal sends one rank a signal, and the reason for its end names who sent it") {
  const Machine machine;
  auto job = machine.start(two_workers(), {"answer=10"}, {});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  const auto caught = machine.ask({"1", "--signal=USR1"});
  CHECK(caught.code == 0);
  CHECK(caught.out == "SIGUSR1 was sent to rank 1\n");
  job.wait_for_out("[default1]:got 10\n");
  job.wait_for_err("ddprun attach (");
  CHECK(machine.ask({"--signal", "15", "0"}).code == 0);
  const auto result = job.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(contains(result.err, "rank 0 (local rank 0, pid "));
  CHECK(contains(result.err, " on host " + local_host_name() + ") sent it SIGTERM"));
  CHECK_FALSE(contains(result.out, "[default0]:got 10"));
}

TEST_CASE("mistakes about a rank are named in one line") {
  const Machine machine;
  CHECK(machine.ask({"0"}).err ==
        "[ddprun] error: no job of this user runs on this machine; use "
        "--rdzv_endpoint=HOST:PORT for a job elsewhere\n");
  auto job = machine.start(two_workers({"--rdzv_id=shop"}), {}, {});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  const auto check = [&](const Words& words, int code, const std::string& line) {
    const auto result = machine.ask(words);
    CHECK(result.code == code);
    CHECK(result.err == "[ddprun] error: " + line + "\n");
  };
  check({"2"}, 2, "job shop has no rank 2: its ranks are 0 to 1");
  check({"two"}, 2, "ddprun attach two: expected the rank of a worker, from 0");
  check({"-1"}, 2, "unknown option -1; ddprun --help lists them all");
  check({}, 2, "ddprun attach: expected RANK; see ddprun attach --help");
  check({"0", "--signal=USR9"}, 2, "--signal = USR9: expected the name or the number of a signal, as USR1");
  check(
      {"0", "--rdzv_id=other"}, 1,
      "no job of run id 'other' of this user runs on this machine; use --rdzv_endpoint=HOST:PORT for a job elsewhere");
  machine.release();
  job.wait();
}

TEST_CASE("attach ends with an error if the agent is killed") {
  const Machine machine;
  auto job = machine.start(two_workers(), before, {});
  job.wait_until([&] { return machine.exist("up", 2); }, "the workers");
  auto attached = machine.attach({"0"});
  attached.wait_for_out("before 0\n");
  job.signal(SIGKILL);
  const auto result = attached.wait();
  CHECK(result.code == 1);
  CHECK(
      contains(result.err, "[ddprun] error: the agent (pid " + std::to_string(job.pid()) + ") ended before the job\n"));
}
