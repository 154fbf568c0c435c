#include <fstream>
#include <future>
#include <sys/stat.h>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;

namespace {

void check_usage_error(const Words& arguments, const std::string& message, const Variables& variables = {}) {
  Words line{DDPRUN_PROGRAM};
  line.insert(line.end(), arguments.begin(), arguments.end());
  const auto result = run_child(line, variables);
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(result.err == "[ddprun] error: " + message + "\n");
}

// Returns a PATH without an interpreter.
Variables no_python(const TempDir& folder) {
  return {{"PATH", folder.path().string()}, {"PYTHON_EXEC", ""}};
}

}  // namespace

TEST_CASE("a usage error is one line and exit code 2") {
  check_usage_error({"--nnode_rank=1", "/bin/true"}, "unknown option --nnode_rank; did you mean --node_rank?");
  check_usage_error({"--nnodes=0", "/bin/true"}, "--nnodes = 0: expected N or MIN:MAX with 1 <= MIN <= MAX <= 65536");
  check_usage_error({"--max_restarts=-1", "/bin/true"},
                    "--max_restarts: launch.max_restarts = -1: expected a whole number at least 0");
  check_usage_error(
      {"--max_restarts=99999999999999", "/bin/true"},
      "--max_restarts: launch.max_restarts = 99999999999999: expected a whole number from 0 to 2147483647");
  check_usage_error({"--bind=numa", "--numa-binding=node", "/bin/true"},
                    "--bind = numa and --numa_binding = node exclude each other");
  check_usage_error({"-t", "4", "/bin/true"},
                    "--tee = 4: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:N[,RANK:N...]");
  check_usage_error({"/bin/true"}, "PET_MAX_RESTARTS: launch.max_restarts = many: expected a whole number at least 0",
                    {{"PET_MAX_RESTARTS", "many"}});
  check_usage_error({"missing.cfg"}, "cannot open missing.cfg: No such file or directory");
}

TEST_CASE("a script, program or hostfile that is missing or of the wrong kind is a usage error") {
  const TempDir folder;
  std::ofstream(folder / "plain") << "x";
  const auto plain = (folder / "plain").string();
  check_usage_error({"missing.py"}, "cannot read missing.py: No such file or directory");
  check_usage_error({"missing.py"}, "cannot read missing.py: No such file or directory", no_python(folder));
  check_usage_error({"/no/such/program"}, "cannot execute /no/such/program: No such file or directory");
  check_usage_error({"no-such-program"},
                    "cannot execute no-such-program: No such file or directory (not on PATH either)");
  check_usage_error({plain}, "cannot execute " + plain + ": Permission denied");
  check_usage_error({"."}, "cannot execute .: it is a folder");
  check_usage_error({"--hostfile=/nonexistent", "/bin/true"},
                    "--hostfile: cannot open /nonexistent: No such file or directory");
}

TEST_CASE("a Python script without an interpreter is a fault, and --dry_run shows its command") {
  const TempDir folder;
  const auto script = (folder / "train.py").string();
  std::ofstream{script};
  const auto refused = run_child({DDPRUN_PROGRAM, script}, no_python(folder));
  CHECK(refused.code == 1);
  CHECK(refused.err.find(script + " needs a Python interpreter, and there is none") != std::string::npos);
  const auto shown = run_child({DDPRUN_PROGRAM, "--dry_run", "--standalone", script}, no_python(folder));
  CHECK(shown.code == 0);
  CHECK(shown.out.find("python3 -u " + script + "\n") != std::string::npos);
}

TEST_CASE("a train.cfg that can be read only once, or without end, is refused") {
  const TempDir folder;
  const auto config = (folder / "job.cfg").string();
  REQUIRE(::mkfifo(config.c_str(), 0600) == 0);
  check_usage_error({config}, config + ": ddprun and every worker read this file: it must not be a FIFO or a device");
  std::filesystem::remove(config);
  std::filesystem::create_symlink("/dev/zero", config);
  check_usage_error({config}, config + ": ddprun and every worker read this file: it must not be a FIFO or a device");
}

TEST_CASE("a hostfile may be a FIFO") {
  const TempDir folder;
  const auto hosts = (folder / "hosts").string();
  REQUIRE(::mkfifo(hosts.c_str(), 0600) == 0);
  const auto writer = std::async(std::launch::async, [&] { std::ofstream(hosts) << "a slots=x\n"; });
  check_usage_error({"--hostfile=" + hosts, "/bin/true"},
                    hosts + ":1: 'slots=x': expected a number of workers from 1 to 4096, not 'x'");
}

TEST_CASE("a key of a train.cfg before the file is refused, and the error shows where it belongs") {
  check_usage_error({"--train.epochs=3", "train.cfg"},
                    "--train.epochs is a key of a train.cfg: put it after the file's name");
  check_usage_error({"--launch.nproc_per_node=3", "train.cfg"},
                    "--launch.nproc_per_node is a key of a train.cfg: put it after the file's name, or write "
                    "--nproc_per_node here");
}

TEST_CASE("an option of ddprun behind the train.cfg is refused, and the error shows where it belongs") {
  const TempDir folder;
  const auto config = (folder / "train.cfg").string();
  std::ofstream(config) << "[train]\nepochs = 3\n";
  const auto message =
      "--nproc_per_node is an option of ddprun: put it before " + config + ", or write --launch.nproc_per_node here";
  check_usage_error({config, "--nproc_per_node=4"}, message);
  check_usage_error({config, "--nproc-per-node", "4"}, message);
}

TEST_CASE("an error that quotes a damaged file does not send its bytes to the terminal") {
  const TempDir folder;
  const auto config = (folder / "job.cfg").string();
  std::ofstream(config) << "[launch]\nowned\xff\n";
  check_usage_error({config}, config + ":2: expected 'key = value' or '[section]', got 'owned\\xff'");
  const auto hosts = (folder / "hosts").string();
  std::ofstream(hosts) << "a \x1b[2J=1\n";
  check_usage_error({"--hostfile=" + hosts, "/bin/true"},
                    hosts + ":1: '\\x1b[2J=1': expected slots=NUMBER after the host");
}

TEST_CASE("output that cannot be written is an error") {
  const TempDir no_jobs;
  for (const Words& words : {Words{"--help"},
                             {"--man"},
                             {"--version"},
                             {"--print-completion=bash"},
                             {"status", "--json"},
                             {"status", "--help"},
                             {"--dry_run", "--standalone", "/bin/true"}}) {
    INFO(words.front());
    Words line{"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", DDPRUN_PROGRAM};
    line.insert(line.end(), words.begin(), words.end());
    const auto result = run_child(line, {{"DDPRUN_RUNTIME_DIR", no_jobs.path().string()}});
    CHECK(result.code == 1);
    CHECK(result.err == "[ddprun] error: cannot write to standard output: No space left on device\n");
  }
}

TEST_CASE("the [launch] section of a train.cfg sets options, which the environment and the command line override") {
  const TempDir folder;
  const auto config = (folder / "job.cfg").string();
  std::ofstream(config) << "[launch]\nnproc_per_node = 3\nrole = trainer\nmax_restart = 1\n";
  check_usage_error({config}, config + ":4: unknown key launch.max_restart; did you mean launch.max_restarts?");
  std::ofstream(config) << "[launch]\nnproc = 3\n";
  check_usage_error({config}, config + ":2: unknown key launch.nproc; did you mean launch.nproc_per_node?");
  std::ofstream(config) << "[launch]\nnproc_per_node = 0\n[train]\nwhatever = 1\n";
  check_usage_error({config}, "--nproc_per_node = 0: expected a number from 1 to 4096, cpu, gpu, xpu or auto");
  check_usage_error({config}, "--nproc_per_node = x: expected a number from 1 to 4096, cpu, gpu, xpu or auto",
                    {{"PET_NPROC_PER_NODE", "x"}});
  check_usage_error({"--nproc_per_node=y", config},
                    "--nproc_per_node = y: expected a number from 1 to 4096, cpu, gpu, xpu or auto",
                    {{"PET_NPROC_PER_NODE", "x"}});
  check_usage_error({config, "--launch.nproc_per_node=z"},
                    "--nproc_per_node = z: expected a number from 1 to 4096, cpu, gpu, xpu or auto");
}

TEST_CASE("a reader that closes the pipe early causes no error message") {
  for (const Words& words :
       {Words{"--help"}, {"--man"}, {"status", "--help"}, {"--dry_run", "--standalone", "/bin/true"}}) {
    INFO(words.front());
    Words line{DDPRUN_PROGRAM};
    line.insert(line.end(), words.begin(), words.end());
    Child program(line);
    program.leave_out();
    const auto result = program.wait();
    // The child may have written all of it before the reader closed the pipe.
    CHECK((result.signal_number == SIGPIPE || (result.signal_number == 0 && result.code == 0)));
    CHECK(result.err == "");
  }
}

TEST_CASE("help and version need no script") {
  const auto help = run_child({DDPRUN_PROGRAM, "--help"});
  CHECK(help.code == 0);
  CHECK(run_child({DDPRUN_PROGRAM, "help"}).out == help.out);
  const auto version = run_child({DDPRUN_PROGRAM, "--version"}).out;
  CHECK(version.starts_with("ddprun "));
  for (const char* library : {"Boost ", "CLI11 ", "fmt ", "spdlog "}) {
    INFO(library);
    CHECK(version.find(library) != std::string::npos);
  }
}
