#include <csignal>
#include <fstream>
#include <sys/ptrace.h>
#include <sys/resource.h>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// No process of a job remains, however it ends, and ddprun does not hang.
using namespace ddprun::testing;

namespace {

// Two workers that have executed the verbs and run.
struct Job {
  Marker marker;
  TempDir folder;
  Child child;

  explicit Job(Words verbs, const Words& options = {})
      : child(command(two_workers(options), with_end(std::move(verbs))), marker.variables()) {
    child.wait_until([&] { return there("0") && there("1"); }, "both workers");
  }
  Words with_end(Words verbs) const {
    verbs.push_back("touch=" + (folder / "${local_rank}").string());
    verbs.emplace_back("pause");
    return verbs;
  }
  bool there(const char* name) const { return std::filesystem::exists(folder / name); }
  void check_nothing_left() {
    child.wait_until([&] { return marker.processes() == 0; }, "end of every process");
    CHECK(marker.processes() == 0);
  }
};

}  // namespace

TEST_CASE("a signal reaches the workers and is the exit code") {
  const int number = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGQUIT);
  CAPTURE(number);
  Job job({"answer=" + std::to_string(number)});
  job.child.signal(number);
  const auto result = job.child.wait();
  CHECK(result.code == 128 + number);
  CHECK(result.out.find("[default0]:got " + std::to_string(number) + "\n") != std::string::npos);
  CHECK(result.out.find("[default1]:got " + std::to_string(number) + "\n") != std::string::npos);
  CHECK(result.err.find("FAILED") == std::string::npos);
  job.check_nothing_left();
}

TEST_CASE("SIGUSR1 and SIGUSR2 are passed on to the workers and do not end ddprun") {
  const int number = GENERATE(SIGUSR1, SIGUSR2);
  CAPTURE(number);
  Job job({"answer=10", "answer=12"});
  job.child.signal(number);
  const auto result = job.child.wait();
  CHECK(result.code == 0);
  CHECK(result.out.find("[default1]:got " + std::to_string(number) + "\n") != std::string::npos);
}

TEST_CASE("SIGUSR1 is not sent to a process without a handler for it, neither worker nor child") {
  Job job({"fork=plain"});
  job.child.signal(SIGUSR1);
  job.child.wait_for_err("SIGUSR1 was not passed to 2 of 2 workers");
  CHECK(job.marker.processes() == 7);  // ddprun, two guardians, two workers with a child each
  job.child.signal(SIGTERM);
  CHECK(job.child.wait().code == 128 + SIGTERM);
}

TEST_CASE("a child with a handler gets SIGUSR1 although its parent shell has none") {
  const Marker marker;
  const TempDir folder;
  const auto up = (folder / "up").string();
  Child child({DDPRUN_PROGRAM, "sh", "-c",
               std::string(VICTIM_PROGRAM) + " answer=10 touch=" + up + " pause; echo the shell goes on"},
              marker.variables());
  child.wait_until([&] { return std::filesystem::exists(up); }, "the child");
  child.signal(SIGUSR1);
  const auto result = child.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "got 10\nthe shell goes on\n");
}

TEST_CASE("SIGUSR1 does not end a shell that forks and blocks all signals meanwhile") {
  const Marker marker;
  const TempDir folder;
  const auto begun = (folder / "begun").string(), over = (folder / "over").string();
  Child child({DDPRUN_PROGRAM, "sh", "-c",
               "touch " + begun + "; i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done; touch " + over +
                   "; echo went on"},
              marker.variables());
  child.wait_until([&] { return std::filesystem::exists(begun); }, "the shell");
  const auto signalled_to_the_end = [&] {
    child.signal(SIGUSR1);
    return std::filesystem::exists(over);
  };
  child.wait_until(signalled_to_the_end, "the end of the loop");
  const auto result = child.wait();
  CHECK(result.code == 0);
  CHECK(result.out == "went on\n");
}

TEST_CASE("a signal in --signals_to_handle ends the job and is passed to the workers first") {
  Job job({"answer=10"}, {"--signals-to-handle=SIGUSR1"});
  job.child.signal(SIGUSR1);
  const auto result = job.child.wait();
  CHECK(result.code == 128 + SIGUSR1);
  CHECK(result.out.find("[default0]:got 10\n") != std::string::npos);
  job.check_nothing_left();
}

TEST_CASE("a signal not in --signals_to_handle has its default effect, and nothing is left") {
  Job job({"answer=15"}, {"--signals_to_handle=SIGINT"});
  job.child.signal(SIGTERM);
  const auto result = job.child.wait();
  CHECK(result.signal_number == SIGTERM);
  CHECK(result.out.find("got") == std::string::npos);
  job.check_nothing_left();
}

TEST_CASE("a worker that ignores SIGTERM is killed after the grace period") {
  Job job({"ignore=15"}, {"--shutdown_timeout=1"});
  job.child.signal(SIGTERM);
  CHECK(job.child.wait().code == 128 + SIGTERM);
  job.check_nothing_left();
}

TEST_CASE("a second signal ends the grace period") {
  Job job({"ignore=15"}, {"--shutdown_timeout=3600"});
  job.child.signal(SIGTERM);
  job.child.wait_for_err("stopped by SIGTERM");
  job.child.signal(SIGTERM);
  CHECK(job.child.wait().code == 128 + SIGTERM);
  job.check_nothing_left();
}

TEST_CASE("a signal during the stop after a failure keeps the grace period, a second one ends it") {
  const Marker marker;
  const TempDir folder;
  const auto up = (folder / "up").string();
  Child child(command(two_workers({"--shutdown_timeout=3600"}),
                      {"if-rank=0", "wait-file=" + up, "exit=3", "end-if", "ignore=15", "touch=" + up, "pause"}),
              marker.variables());
  child.wait_for_err("failed: exit code 3");
  child.signal(SIGTERM);
  child.wait_for_err("a second signal kills them");
  CHECK(marker.processes() == 4);  // rank 1 still runs
  child.signal(SIGTERM);
  CHECK(child.wait().code == 3);
  CHECK(marker.processes() == 0);
}

TEST_CASE("a signal during the stop for a new round ends the job gracefully, a second one immediately") {
  const Marker marker;
  const TempDir folder;
  const auto up = (folder / "up").string();
  Child child(command(two_workers({"--shutdown_timeout=3600", "--max_restarts=1"}),
                      {"if-rank=0", "wait-file=" + up, "exit=3", "end-if", "ignore=15", "touch=" + up, "pause"}),
              marker.variables());
  child.wait_for_err("new round: rank 0");
  child.signal(SIGTERM);
  child.wait_for_err("stopped by SIGTERM");
  CHECK(marker.processes() == 4);
  child.signal(SIGTERM);
  CHECK(child.wait().code == 128 + SIGTERM);
  CHECK(marker.processes() == 0);
}

TEST_CASE("the grace period is --shutdown_timeout also after a failure and before a new round") {
  const int restarts = GENERATE(0, 1);
  CAPTURE(restarts);
  const Marker marker;
  const TempDir folder;
  const auto up = (folder / "up").string();
  const auto result =
      run_child(command(two_workers({"--shutdown_timeout=1", "--max_restarts=" + std::to_string(restarts)}),
                        {"if-attempt=0", "if-rank=0", "wait-file=" + up, "exit=3", "end-if", "if-attempt=0",
                         "ignore=15", "touch=" + up, "pause", "end-if"}),
                marker.variables());
  CHECK(result.code == (restarts == 0 ? 3 : 0));
  CHECK(marker.processes() == 0);
}

TEST_CASE("a failure also stops workers that have just been forked") {
  // The first of many workers fails before the last is forked.
  for (int round = 0; round < 5; ++round) {
    const Marker marker;
    const auto result = run_child(command({"--standalone", "--nproc_per_node=12", "--shutdown_timeout=3600"},
                                          {"if-rank=0", "exit=3", "end-if", "pause"}),
                                  marker.variables());
    CHECK(result.code == 3);
    CHECK(marker.processes() == 0);
  }
}

TEST_CASE("a worker that is stopped (SIGSTOP) still ends on SIGTERM") {
  const Marker marker;
  Child child(command(two_workers({"--shutdown_timeout=3600"}), {"raise=19", "pause"}), marker.variables());
  child.wait_until([&] { return marker.processes('T') == 2; }, "stop of both workers");
  child.signal(SIGTERM);
  CHECK(child.wait().code == 128 + SIGTERM);
  CHECK(marker.processes() == 0);
}

TEST_CASE("children of workers are stopped too, whatever session they are in") {
  const std::string kind = GENERATE("plain", "setsid", "stubborn");
  CAPTURE(kind);
  Job job({"fork=" + kind, "fork=" + kind}, {"--shutdown_timeout=1"});
  job.child.signal(SIGTERM);
  CHECK(job.child.wait().code == 128 + SIGTERM);
  CHECK(job.marker.processes() == 0);
}

TEST_CASE("children that outlive their workers are ended with a job that succeeded") {
  const std::string kind = GENERATE("plain", "setsid", "stubborn");
  CAPTURE(kind);
  const Marker marker;
  Child child(command(two_workers(), {"fork=" + kind}), marker.variables());
  CHECK(child.wait().code == 0);
  CHECK(marker.processes() == 0);
}

TEST_CASE("SIGKILL of ddprun leaves nothing") {
  const std::string kind = GENERATE("plain", "setsid", "stubborn");
  CAPTURE(kind);
  Job job({"ignore=15", "ignore=1", "fork=" + kind});
  job.child.signal(SIGKILL);
  job.check_nothing_left();
}

TEST_CASE("SIGKILL of ddprun leaves no temporary folder either") {
  const Marker marker;
  const TempDir temporary;
  const TempDir folder;
  const auto up = folder / "up";
  auto variables = marker.variables();
  variables["TMPDIR"] = temporary.path().string();
  Child child(command({}, {"touch=" + up.string(), "pause"}), variables);
  child.wait_until([&] { return std::filesystem::exists(up); }, "worker");
  CHECK_FALSE(std::filesystem::is_empty(temporary.path()));
  child.signal(SIGKILL);
  child.wait_until([&] { return std::filesystem::is_empty(temporary.path()); }, "removal of the folder");
  child.wait_until([&] { return marker.processes() == 0; }, "end of every process");
}

TEST_CASE("SIGKILL of ddprun before it has any worker leaves no temporary folder") {
  const Marker marker;
  const TempDir temporary;
  auto variables = marker.variables();
  variables["TMPDIR"] = temporary.path().string();
  // The agent waits for a node that does not exist.
  Child child(command({"--nnodes=2", "--rdzv_endpoint=127.0.0.1:1", "--rdzv_conf=is_host=false"}, {}), variables);
  child.wait_until([&] { return !std::filesystem::is_empty(temporary.path()); }, "the folder");
  child.wait_for_err("no rendezvous server");
  child.signal(SIGKILL);
  child.wait_until([&] { return std::filesystem::is_empty(temporary.path()); }, "removal of the folder");
}

TEST_CASE("a guardian that was killed is replaced, and SIGKILL of ddprun still leaves nothing") {
  const std::string kind = GENERATE("plain", "setsid", "stubborn");
  const std::string name = GENERATE("ddprun-guardian", "job-guardian");
  CAPTURE(kind, name);
  Job job({"ignore=15", "ignore=1", "fork=" + kind});
  pid_t guardian = -1;
  job.child.wait_until([&] { return (guardian = job.marker.process_named(name)) > 0; }, "guardian");
  ::kill(guardian, SIGKILL);
  job.child.wait_for_err("the guardian process (pid " + std::to_string(guardian) +
                         ") has ended by SIGKILL; started another (pid ");
  job.child.signal(SIGKILL);
  job.check_nothing_left();
}

TEST_CASE("a guardian that is killed repeatedly is replaced each time, and the job ends as usual") {
  Job job({"answer=15", "fork=setsid"});
  pid_t previous = -1;
  for (int kills = 0; kills < 4; ++kills) {
    pid_t guardian = -1;
    const auto replaced = [&] {
      guardian = job.marker.process_named("ddprun-guardian");
      return guardian > 0 && guardian != previous;
    };
    job.child.wait_until(replaced, "guardian");
    ::kill(guardian, SIGKILL);
    job.child.wait_for_err("the guardian process (pid " + std::to_string(guardian) + ") has ended by SIGKILL");
    previous = guardian;
  }
  job.child.signal(SIGTERM);
  CHECK(job.child.wait().code == 128 + SIGTERM);
  job.check_nothing_left();
}

TEST_CASE("a guardian that cannot be executed again is one error, and the job ends as usual") {
  const Marker marker;
  const TempDir folder;
  auto variables = marker.variables();
  for (const char* name : {"FIRST", "SECOND"}) variables[name] = std::string(100'000, 'x');
  Child child(command({}, {"touch=" + (folder / "up").string(), "wait-file=" + (folder / "go").string()}), variables);
  child.wait_until([&] { return std::filesystem::exists(folder / "up"); }, "worker");
  pid_t guardian = -1;
  child.wait_until([&] { return (guardian = marker.process_named("ddprun-guardian")) > 0; }, "guardian");
  const rlimit small_stack{512 * 1024, 512 * 1024};  // the limit of an environment is a quarter of it
  REQUIRE(::prlimit(child.pid(), RLIMIT_STACK, &small_stack, nullptr) == 0);
  ::kill(guardian, SIGKILL);
  const std::string error = "[ddprun] error: the guardian process (pid " + std::to_string(guardian) +
                            ") has ended: cannot execute ddprun as the guardian process: Argument list too long; if "
                            "ddprun and its other guardian process are killed now, workers may survive\n";
  child.wait_for_err(error);
  std::ofstream(folder / "go").put('\n');
  const auto result = child.wait();
  CHECK(result.code == 0);
  CHECK(result.err == error);
}

TEST_CASE("the death of the guardian does not end workers") {
  const Marker marker;
  const TempDir folder;
  Child child(command({"--max_restarts=1"}, {"if-attempt=0", "touch=" + (folder / "up").string(),
                                             "wait-file=" + (folder / "go").string(), "exit=3", "end-if"}),
              marker.variables());
  child.wait_until([&] { return std::filesystem::exists(folder / "up"); }, "worker");
  pid_t guardian = -1;  // it takes its name when it first runs, which may be after the worker
  child.wait_until([&] { return (guardian = marker.process_named("ddprun-guardian")) > 0; }, "guardian");
  ::kill(guardian, SIGKILL);
  std::ofstream(folder / "go").put('\n');
  CHECK(child.wait().code == 0);
}

TEST_CASE("SIGKILL of ddprun and a guardian at the same moment leaves neither processes nor files") {
  const std::string name = GENERATE("ddprun-guardian", "job-guardian");
  CAPTURE(name);
  const Marker marker;
  const TempDir temporary, runtime, folder;
  auto variables = marker.variables();
  variables["TMPDIR"] = temporary.path().string();
  variables["DDPRUN_RUNTIME_DIR"] = runtime.path().string();
  variables["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1";
  variables["TORCHELASTIC_TIMER_FILE"] = (folder / "timer").string();
  Child child(command({}, {"ignore=1", "fork=setsid", "touch=" + (folder / "up").string(), "pause"}), variables);
  child.wait_until([&] { return std::filesystem::exists(folder / "up"); }, "worker");
  pid_t guardian = -1;
  child.wait_until([&] { return (guardian = marker.process_named(name)) > 0; }, "guardian");
  CHECK_FALSE(std::filesystem::is_empty(temporary.path()));
  CHECK_FALSE(std::filesystem::is_empty(runtime.path()));
  child.signal(SIGSTOP);  // it can then not replace the guardian
  ::kill(guardian, SIGKILL);
  child.signal(SIGKILL);
  child.wait_until([&] { return marker.processes() == 0; }, "end of every process");
  CHECK(std::filesystem::is_empty(temporary.path()));
  CHECK(std::filesystem::is_empty(runtime.path()));
  CHECK_FALSE(std::filesystem::exists(folder / "timer"));
}

TEST_CASE("frozen guardians do not delay the end of the job") {
  Job job({"answer=15"});
  for (const char* name : {"ddprun-guardian", "job-guardian"}) {
    pid_t guardian = -1;
    job.child.wait_until([&] { return (guardian = job.marker.process_named(name)) > 0; }, "guardian");
    ::kill(guardian, SIGSTOP);
  }
  job.child.wait_until([&] { return job.marker.processes('T') == 2; }, "stop of the guardians");
  job.child.signal(SIGTERM);
  const auto result = job.child.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(result.err.find("guardian") == std::string::npos);
  job.check_nothing_left();
}

TEST_CASE("a guardian that does not end is killed, and a line says so") {
  Job job({"answer=15"});
  pid_t guardian = -1;
  job.child.wait_until([&] { return (guardian = job.marker.process_named("ddprun-guardian")) > 0; }, "guardian");
  // A debugger holds the guardian: SIGCONT has no effect.
  if (::ptrace(PTRACE_SEIZE, guardian, nullptr, nullptr) != 0) SKIP("this machine does not permit ptrace(2)");
  REQUIRE(::ptrace(PTRACE_INTERRUPT, guardian, nullptr, nullptr) == 0);
  REQUIRE(::waitpid(guardian, nullptr, __WALL) == guardian);
  job.child.signal(SIGTERM);
  const auto result = job.child.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(result.err.find("the guardian process (pid " + std::to_string(guardian) +
                        ") has not ended within 5 s; killing it\n") != std::string::npos);
  while (::waitpid(guardian, nullptr, __WALL) < 0 && errno == EINTR) continue;
  job.check_nothing_left();
}

TEST_CASE("SIGKILL of ddprun's whole process group leaves nothing") {
  Job job({"fork=plain"});
  ::kill(-job.child.pid(), SIGKILL);
  job.check_nothing_left();
}

TEST_CASE("the guardian holds none of ddprun's descriptors and ends with it") {
  const Marker marker;
  // wait() returns when the pipes have no writer left: a guardian that held one would time out here.
  CHECK(Child(command(two_workers(), {}), marker.variables()).wait().code == 0);
  CHECK(marker.processes() == 0);
}

TEST_CASE("children that existed before the exec of ddprun are left alone") {
  const Marker marker;
  // One child runs; another has ended, and ddprun is its parent that has to reap it.
  Child child({"/bin/sh", "-c",
               "sleep 1000 >/dev/null 2>&1 & echo $!; true & exec " DDPRUN_PROGRAM " --nproc_per_node=2 " VICTIM_PROGRAM
               " fork=plain"},
              marker.variables());
  const auto result = child.wait();
  CHECK(result.code == 0);
  const auto sleeper = std::stoi(result.out);
  CHECK(::kill(sleeper, 0) == 0);
  ::kill(sleeper, SIGKILL);
}
