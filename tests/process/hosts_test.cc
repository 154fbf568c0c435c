#include <csignal>
#include <fstream>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// ddprun --hosts with this machine as the host, which needs no ssh. tests/multihost has hosts with an sshd.
using namespace ddprun::testing;

TEST_CASE("localhost as a host starts its agent without ssh, and its exit code is the job's") {
  const auto job =
      run_child(command({"--hosts=localhost:2", "--ssh=/nonexistent"}, {"if-rank=1", "exit=9", "end-if", "pause"}));
  INFO(job.out << job.err);
  CHECK(job.code == 9);
  CHECK(job.err.find("Root Cause") != std::string::npos);
}

TEST_CASE("a hostfile with one host does the same, and its lines get no prefix") {
  const TempDir folder;
  std::ofstream(folder / "hosts") << "localhost slots=1  # me\n";
  const auto job = run_child(command({"--hostfile=" + (folder / "hosts").string()}, {"out=no end of line"}));
  INFO(job.err);
  CHECK(job.code == 0);
  CHECK(job.out == "no end of line");
}

TEST_CASE("with many hosts ddprun raises its own limit of open files, and the workers keep the original limit") {
  std::string hosts = "localhost";
  for (int host = 2; host <= 20; ++host) hosts += ",h" + std::to_string(host);
  const std::string here_too = R"(/bin/sh -c 'for last; do :; done; exec /bin/sh -c "$last"' ssh)";
  const auto job = run_child({"/bin/sh", "-c", "ulimit -Sn 64; exec \"$@\"", "sh", DDPRUN_PROGRAM, "--hosts=" + hosts,
                              "--ssh=" + here_too, "--nproc_per_node=1", "--no_python", "/bin/sh", "-c", "ulimit -Sn"});
  INFO(job.err);
  CHECK(job.code == 0);
  const auto lines = lines_of(job.out);
  CHECK(lines.size() == 20);
  for (const auto& line : lines) CHECK(line.ends_with("] 64"));
}

TEST_CASE("workers started by --hosts end with the starting ddprun, also after SIGKILL") {
  const Marker marker;
  Child job(
      command({"--hosts=localhost:2", "--shutdown_timeout=600"}, {"ignore=15", "fork=setsid", "err=runs\\n", "pause"}),
      marker.variables());
  const auto runs = [&] {
    return job.err().find("default0]:runs") != std::string::npos &&
           job.err().find("default1]:runs") != std::string::npos;
  };
  job.wait_until(runs, "both workers");
  job.signal(SIGKILL);
  job.wait_until([&] { return marker.processes() == 0; }, "end of all");
}

TEST_CASE("an agent that ends before it has read its launch request ends the job with an error, not with SIGPIPE") {
  const TempDir folder;
  std::ofstream(folder / "ssh") << "exec <&-\n"
                                   "version=$("
                                << DDPRUN_PROGRAM
                                << " --version </dev/null | sed -n 's/^ddprun //p')\n"
                                   "printf '\\001%s here %s - -\\n' \"${2##*--remote_agent=}\" \"$version\"\n"
                                   "echo the line broke >&2\n"
                                   "exit 255\n";
  const auto job = run_child(command({"--hosts=far", "--ssh=/bin/sh " + (folder / "ssh").string()}, {"pause"}));
  INFO(job.err);
  CHECK(job.signal_number == 0);
  CHECK(job.code == 1);
  CHECK(job.err.find("far") != std::string::npos);
  CHECK(job.err.find("the line broke") != std::string::npos);
}

TEST_CASE("errors about hosts are one line and exit code 2") {
  const auto job = run_child(command({"--hosts=a:0"}, {}));
  CHECK(job.code == 2);
  CHECK(job.err == "[ddprun] error: --hosts: 'a:0': expected a number of workers from 1 to 4096, not '0'\n");
  CHECK(run_child(command({"--hosts=a,b", "--node_rank=1"}, {})).code == 2);
}

TEST_CASE("option --remote_agent typed by a user is refused instead of waiting") {
  const auto job = run_child({"/bin/sh", "-c", std::string("echo hello | ") + DDPRUN_PROGRAM + " --remote_agent=x"});
  CHECK(job.code == 1);
  CHECK(job.err.find("'hello' is not a launch request") != std::string::npos);
}
