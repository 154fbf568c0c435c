#include <csignal>
#include <fstream>
#include <sys/stat.h>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// The first line of a failure report names the rank, the host and the cause, also where the exit code does not show the
// cause.
using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string executable(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

// A sanitized program needs more before main().
#ifdef __SANITIZE_ADDRESS__
constexpr long memory_mib = 1024;
#else
constexpr long memory_mib = 64;
#endif

// A memory cgroup, version 1 or 2, for one test. Its processes have to end before it does.
class LimitedCgroup {
 public:
  explicit LimitedCgroup(long bytes) {
    const auto name = "ddprun-test-" + std::to_string(::getpid());
    for (const bool unified : {false, true}) {
      folder_ = std::filesystem::path(unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") / name;
      if (::mkdir(folder_.c_str(), 0755) != 0) continue;
      const bool limited = write(unified ? "memory.max" : "memory.limit_in_bytes", std::to_string(bytes));
      write(unified ? "memory.swap.max" : "memory.memsw.limit_in_bytes", unified ? "0" : std::to_string(bytes));
      if (limited) return;
      ::rmdir(folder_.c_str());
    }
    SKIP("no memory cgroup can be created here: it takes root, and a writable hierarchy");
  }
  ~LimitedCgroup() { ::rmdir(folder_.c_str()); }
  LimitedCgroup(const LimitedCgroup&) = delete;
  LimitedCgroup& operator=(const LimitedCgroup&) = delete;

  // Returns the command line that runs the command in the group.
  Words around(const Words& command) const {
    Words words{"/bin/sh", "-c", "echo $$ > " + (folder_ / "cgroup.procs").string() + " && exec \"$@\"", "sh"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

 private:
  bool write(const char* file, const std::string& text) const {
    std::ofstream stream(folder_ / file);
    stream << text << std::flush;
    return stream.good();
  }
  std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("the report of a worker that the kernel's memory limit killed says so") {
  const LimitedCgroup cgroup(memory_mib << 20);
  const auto allocation = "eat=" + std::to_string(6 * memory_mib);
  const std::string by = GENERATE("itself", "its shell");
  CAPTURE(by);
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  const auto shell_command = std::string(VICTIM_PROGRAM) + " if-rank=1 " + allocation + " end-if pause";
  for (const auto& word : by == "itself" ? Words{VICTIM_PROGRAM, "if-rank=1", allocation, "end-if", "pause"}
                                         : Words{"sh", "-c", shell_command + "; exit $?"})
    words.push_back(word);
  const auto result = run_child(cgroup.around(words));
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, "[ddprun] error: rank 1 (local rank 1, pid "));
  CHECK(contains(result.err, "out of memory: "));
  CHECK(contains(result.err, "has a limit of " + std::to_string(memory_mib) + " MiB)"));
}

TEST_CASE("the report of a worker that another process killed does not mention memory") {
  const auto result = run_child(command(two_workers(), {"if-rank=0", "raise=9", "end-if", "pause"}));
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, "failed: ended by SIGKILL (another process sent it"));
  CHECK_FALSE(contains(result.err, "out of memory"));
}

TEST_CASE("the first line says why a program cannot be executed") {
  const TempDir folder;
  const auto script = executable(folder / "script", "#!/no/such/interpreter\n");
  const auto result = run_child({DDPRUN_PROGRAM, script});
  CHECK(result.code == 1);
  CHECK(result.err.starts_with("[ddprun] error: rank 0 (local rank 0, pid "));
  CHECK(contains(result.err,
                 "cannot execute " + script + ": its interpreter /no/such/interpreter (line 1) does not exist\n"));
}

TEST_CASE("the first line has the last line of a traceback, the summary all of it") {
  const auto result = run_child(command(
      {},
      {R"(error-file={"message": {"message": "boom", "extraInfo": {"py_callstack": )"
       R"("Traceback (most recent call last):\n  File \"x.py\"\nRuntimeError: boom\n", "timestamp": "1700000000"}}})",
       "exit=1"}));
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(contains(result.err, "failed: exit code 1: RuntimeError: boom\n"));
  CHECK(contains(result.err,
                 "  traceback : Traceback (most recent call last):\n    File \"x.py\"\n  RuntimeError: boom\n"));
}

TEST_CASE("a worker that failed as a consequence is not the root cause, even if it ends first") {
  const TempDir folder;
  const auto reported = (folder / "reported").string();
  const auto result =
      run_child(command(two_workers(), {"if-rank=0",
                                        R"(error-file={"message": {"message": "rank 1 is lost", "extraInfo": )"
                                        R"({"consequence": true, "timestamp": "1700000000"}}})",
                                        "touch=" + reported, "exit=1", "end-if", "wait-file=" + reported, "raise=9"}));
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(result.err.starts_with("[ddprun] error: rank 1 (local rank 1, pid "));
}

TEST_CASE("a frozen worker is named when another one fails") {
  const Marker marker;
  const TempDir folder;
  const auto go = (folder / "go").string();
  Child child(command(two_workers(), {"if-rank=1", "raise=19", "end-if", "wait-file=" + go, "exit=3"}),
              marker.variables());
  child.wait_until([&] { return marker.processes('T') == 1; }, "stop of rank 1");
  std::ofstream(go).put('\n');
  const auto result = child.wait();
  INFO(result.err);
  CHECK(result.code == 3);
  CHECK(contains(result.err, "rank 1 (local rank 1, pid "));
  CHECK(contains(result.err, " is frozen: stopped by SIGSTOP\n"));
  CHECK(contains(result.err, "rank 0 (local rank 0, pid "));
}
