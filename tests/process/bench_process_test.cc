#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <boost/json.hpp>

#include "tests/bench/process.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

// ddprun-bench: its results are right, and no process of the measured programs remains.
using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("a launcher under measurement leaves no worker behind, whether it stops them or not") {
  const std::string launcher = GENERATE("exec sleep 1000", "setsid sleep 1000 & wait", "setsid sleep 1000 & exit 0");
  CAPTURE(launcher);
  const Marker marker;
  {
    auto environment = Environment::capture();
    for (const auto& [name, value] : marker.variables()) environment.set(name, value);
    const bench::Process process({"/bin/sh", "-c", launcher},
                                 {.environment = environment.entries(), .own_group = true});
    const auto soon = Deadline::in(std::chrono::seconds(20));
    while (marker.process_named("sleep") < 0 && !soon.expired()) std::this_thread::yield();
    REQUIRE(marker.process_named("sleep") > 0);
  }
  CHECK(marker.processes() == 0);
}

TEST_CASE("a benchmark whose reader closes the pipe ends without a message, also while another process prints") {
  Child bench({BENCH_PROGRAM, "collectives", "--ranks=2", "--max-bytes=64", "--seconds=0.2"});
  bench.wait_for_out("\n");
  bench.leave_out();
  const auto result = bench.wait();
  CHECK(result.signal_number == SIGPIPE);
  CHECK(result.err == "");
}

TEST_CASE("a benchmark that is not named is a mistake whose line names them all") {
  const auto result = run_child({BENCH_PROGRAM});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Catch::StartsWith("[ddprun-bench] error: expected what is to be measured: collectives, ") &&
                             Catch::EndsWith("; see ddprun-bench --help\n"));
}

TEST_CASE("collectives are measured, and their results found right, for any number of ranks") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const auto result =
      Child({BENCH_PROGRAM, "collectives", "--ranks=" + ranks, "--max-bytes=1024", "--seconds=0.001"}).wait();
  CHECK(result.err == "");
  CHECK(result.code == 0);
}

TEST_CASE("a benchmark that is killed leaves no launcher behind, and none of its workers") {
  // The pairs are a launcher and a variable of its workers; both are empty for the baseline.
  const auto [launcher, variable] =
      GENERATE(table<std::string, std::string>({{"", ""},
                                                {"ddprun", "TORCHELASTIC_RUN_ID"},
                                                {"mpirun.openmpi", "OMPI_COMM_WORLD_SIZE"},
                                                {"mpirun.mpich", "PMI_SIZE"}}));
  const int signal_number = GENERATE(SIGKILL, SIGINT);
  CAPTURE(launcher, signal_number);
  if (launcher.starts_with("mpirun") && !bench::find_on_path(launcher)) return;
  const TempDir folder;
  const auto program = (folder / "program").string();
  std::filesystem::create_symlink("/bin/sleep", folder / "caught");
  std::ofstream(program) << "#!/bin/sh\n"
                            "[ -z \"$CAUGHT\" ] || env | grep -q \"^$CAUGHT=\" || exit 0\n"
                            "exec ${0%/*}/caught 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Marker marker;
  auto variables = marker.variables();
  variables["CAUGHT"] = variable;
  Child bench({BENCH_PROGRAM, "launch", "--workers=2", "--torch-python=/nonexistent", "--program=" + program},
              variables);
  bench.wait_until([&] { return marker.process_named("caught") > 0; }, "a worker");
  bench.signal(signal_number);
  CHECK(bench.wait().signal_number == signal_number);
  bench.wait_until([&] { return marker.processes() == 0; }, "the end of all that it had started");
}

TEST_CASE("a benchmark whose table cannot be written ends with an error") {
  for (const Words& words : {Words{"--help"}, {"collectives", "--ranks=2", "--max-bytes=64", "--seconds=0.2"}}) {
    INFO(words.front());
    Words line{"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", BENCH_PROGRAM};
    line.insert(line.end(), words.begin(), words.end());
    const auto result = Child(line).wait();
    CHECK(result.code == 1);
    CHECK(result.err.find("cannot write to standard output: No space left on device\n") != std::string::npos);
  }
}

#if defined(DDPRUN_BENCH_OF_TRAINING)
TEST_CASE("a form of parallel training is measured beside one process and DDP, and an unknown one is refused") {
  const auto result =
      Child({BENCH_PROGRAM, "parallel", "--form=zero 3", "--rounds=1", "--steps=1", "--width=32"}).wait();
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("\nddp ") && Catch::Contains("\nzero 3 "));
  const auto refused = Child({BENCH_PROGRAM, "parallel", "--form=ddq"}).wait();
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains("there is no form 'ddq'"));
}

TEST_CASE("recoveries of a job whose ranks are killed are measured by phase") {
  const auto result =
      Child({BENCH_PROGRAM, "recovery", "--json", "--backend=shm", "--ranks=2", "--kills=2", "--batch=4"}).wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::StartsWith(R"({"backend": "shm", "ranks": 2, "kills": 2, "load": )"));
  for (const auto* phase :
       {"step_ms", "detect_ms", "plan_ms", "form_ms", "heal_ms", "session_ms", "replay_ms", "total_ms"})
    CHECK_THAT(result.out, Catch::Contains(phase));
  CHECK_THAT(result.out, Catch::Contains("\"lost_steps\": 0}"));
}

TEST_CASE("recoveries of ranks on two hosts are measured with a delay between these, and with a state of any size") {
  for (const auto& why : {NetnsHosts::why_not(), NetnsHosts::why_not_isolated()})
    if (!why.empty()) SKIP(why);
  const auto result = Child({BENCH_PROGRAM, "recovery", "--json", "--hosts=2", "--delay=20ms", "--ranks=2", "--kills=1",
                             "--batch=4", "--state=1MB", "--steps=3"})
                          .wait(std::chrono::seconds(60));
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto row = boost::json::parse(result.out).as_object();
  CHECK(row.at("backend").as_string() == "gloo");
  CHECK(std::abs(row.at("state_bytes").to_number<double>() - 1e6) < 1e4);
  CHECK(row.at("step_ms").to_number<double>() > 20);  // the gradients of a step pass the link
  for (const auto* rate : {"heal_bytes_per_s", "raw_bytes_per_s"}) CHECK(row.at(rate).to_number<double>() > 0);
}

TEST_CASE("what recoveries cannot be measured with is refused in one line") {
  const auto [options, error] = GENERATE(table<Words, std::string>(
      {{{"--delay=1ms"}, "--delay = 1 ms: it needs --hosts = 2 or more"},
       {{"--hosts=2", "--nodes=2"}, "--nodes excludes --hosts"},
       {{"--state=1MB", "--model=gpt"}, "--model excludes --state"},
       {{"--ranks=3", "--nodes=2"}, "--ranks = 3: give 2 or more, and a multiple of the number of agents (2)"}}));
  Words words{BENCH_PROGRAM, "recovery"};
  words.insert(words.end(), options.begin(), options.end());
  const auto result = Child(words).wait();
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun-bench] error: " + error + "\n");
}

TEST_CASE("hosts are refused in one line to a user who is not root") {
  const auto result = Child({"/usr/bin/unshare", "--user", BENCH_PROGRAM, "recovery", "--hosts=2"}).wait();
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun-bench] error: --hosts = 2: network namespaces need root\n");
}

TEST_CASE("a hook is measured over a slow link, with the bytes that it sends") {
  for (const auto& why : {NetnsHosts::why_not(), NetnsHosts::why_not_isolated()})
    if (!why.empty()) SKIP(why);
  const auto result =
      Child({BENCH_PROGRAM, "hooks_link", "--hook=bf16", "--rounds=1", "--steps=1", "--mbit=2000", "--json"})
          .wait(std::chrono::seconds(60));
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::StartsWith("{\"hook\": \"bf16\", \"bytes\": 37274"));  // 2 for each parameter
}
#endif
