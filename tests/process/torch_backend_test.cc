// ddprun as the back end of torch.distributed, compiled and in Python: the scripts in tests/python check themselves;
// here they are run as their users would run them, and one of ranks that crash is read from outside.
#include <filesystem>
#include <regex>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/random_kills.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

using namespace ddprun::testing;

namespace {

constexpr std::pair<int, int> oldest_torch{2, 14};
constexpr std::pair<int, int> oldest_torch_for_python{2, 15};
// The first job compiles the back end, and importing torch takes each process seconds.
constexpr std::chrono::seconds timeout{400};

class BackendJob {
 public:
  // extension is "1" for the compiled back end, "0" for the one in Python, "" for the package's choice.
  explicit BackendJob(TorchPython python, std::string extension = "1")
      : python_(std::move(python)), extension_(std::move(extension)) {}

  Child::Result ranks(int n, const std::string& script, const Words& arguments = {}, Variables more = {}) const {
    return run({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(n), script_path(script)},
               arguments, std::move(more));
  }
  Child::Result alone(const std::string& script, const Words& arguments = {}) const {
    return run({python_.path, script_path(script)}, arguments, {});
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  static std::string script_path(const std::string& script) { return PYTHON_TESTS "/" + script; }
  Variables variables() const {
    return {{"PYTHON_EXEC", python_.path},
            {"PYTHONPATH", PYTHON_PACKAGES},
            {"PYTHONWARNINGS", "ignore"},
            {"TMPDIR", folder_.path().string()},  // PyTorch leaves folders there
            {"DDPRUN_BUILD_DIR", DDPRUN_BUILD_FOLDER},
            {"DDPRUN_CACHE_DIR", DDPRUN_BUILD_FOLDER "/torch-cache"},
            {"DDPRUN_TORCH_EXTENSION", extension_},
            {"OMP_NUM_THREADS", "1"},
            {"GLOO_SOCKET_IFNAME", "lo"}};
  }

 private:
  Child::Result run(Words words, const Words& arguments, Variables more) const {
    words.insert(words.end(), arguments.begin(), arguments.end());
    more.merge(variables());
    return Child(words, more).wait(timeout);
  }

  TorchPython python_;
  std::string extension_;
  TempDir folder_;
};

// Returns the back ends that this torch can have.
std::vector<std::string> extensions(const TorchPython& python) {
  if (python.version >= oldest_torch_for_python) return {"1", "0"};
  return {"1"};
}

bool builds_wheels(const TorchPython& python) {
  return Child({python.path, "-c", "import setuptools.command.bdist_wheel"}).wait(timeout).code == 0;
}

void check_every_rank_says(const Child::Result& result, int n, const std::string& text) {
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (int rank = 0; rank < n; ++rank)
    CHECK_THAT(result.out, Catch::Contains("rank " + std::to_string(rank) + ": " + text));
}

}  // namespace

#define REQUIRE_TORCH()                         \
  const auto python = find_torch(oldest_torch); \
  if (!python) SKIP("neither DDPRUN_TORCH_PYTHON nor python3 has torch 2.14 or newer")
#define REQUIRE_TORCH_FOR_PYTHON()                         \
  const auto python = find_torch(oldest_torch_for_python); \
  if (!python) SKIP("neither DDPRUN_TORCH_PYTHON nor python3 has torch 2.15 or newer")
// The rest of the test runs once with each back end.
#define FOR_EACH_BACK_END()                                              \
  const auto extension = GENERATE_COPY(from_range(extensions(*python))); \
  INFO("DDPRUN_TORCH_EXTENSION=" << extension);                          \
  const BackendJob job(*python, extension)

TEST_CASE("PyTorch over ddprun: every operation, type and reduction gives the right values") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  check_every_rank_says(job.ranks(3, "operations.py"), 3, "every operation is right");
  check_every_rank_says(job.ranks(2, "operations.py", {"gloo"}), 2, "every operation is right");
}

TEST_CASE("PyTorch over ddprun: DDP, FSDP, tensor parallel and checkpoints give Gloo's losses") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  check_every_rank_says(job.ranks(2, "training.py", {job.file("checkpoint")}), 2, "the losses are Gloo's");
}

TEST_CASE("PyTorch over ddprun: a script that asks for gloo gets ddprun when a variable says so") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto with = job.ranks(2, "asks_for_gloo.py", {}, {{"DDPRUN_TORCH_BACKEND", "1"}});
  check_every_rank_says(with, 2, "gloo is ddprun");
  check_every_rank_says(job.ranks(2, "asks_for_gloo.py"), 2, "gloo is gloo");
}

TEST_CASE("PyTorch over ddprun: the death of a rank is an exception that names it, its host and the cause") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto result = job.alone("failures.py", {"death", "1"});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (const char* survivor : {"rank 0", "rank 1"})
    CHECK(
        std::regex_search(result.out, std::regex(survivor + std::string(": after [0-9.]+ s: ddprun: rank 2 \\(pid "))));
}

TEST_CASE("PyTorch over ddprun: two hundred deaths", "[.nightly]") {
  REQUIRE_TORCH();
  const BackendJob job(*python);
  const auto result = job.alone("failures.py", {"death", "200"});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("200 deaths were noticed"));
}

TEST_CASE("PyTorch over ddprun: a thread aborts a group, and the next one works in the same process") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  check_every_rank_says(job.ranks(3, "failures.py", {"abort"}), 3, "the next group works");
}

TEST_CASE("PyTorch over ddprun: groups are made anew by reconfigure()") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  check_every_rank_says(job.ranks(3, "failures.py", {"reconfigure"}), 3, "reconfigured");
}

TEST_CASE("PyTorch over ddprun: training goes on without a rank that died, in the same processes") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto result = job.alone("elastic_example.py");
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  std::smatch end;
  if (extension == "1") CHECK_THAT(result.out, Catch::Contains("DistBackendError: ddprun: rank 1 "));
  const std::regex ends("finished with 2 ranks: (\\S+)[^]*finished with 2 ranks: (\\S+)");
  REQUIRE(std::regex_search(result.out, end, ends));
  CHECK(end[1] == end[2]);
}

TEST_CASE("PyTorch over ddprun: twenty kills of random ranks, the same losses, and the others keep their processes") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto command = [](const std::string& steps) -> Words {
    return {DDPRUN_PROGRAM,
            "--standalone",
            "--max_restarts=20",
            "--nproc_per_node=3",
            BackendJob::script_path("recovery_example.py"),
            steps};
  };
  check_survives_kills({.command = command, .variables = job.variables(), .bound = timeout},
                       extension == "1" ? 20 : 3);  // each replacement imports torch
}

TEST_CASE("PyTorch over ddprun: the wheel works in a bare environment beside torch") {
  REQUIRE_TORCH();
  if (!builds_wheels(*python)) SKIP("the Python with torch has no setuptools 70.1 or newer to build a wheel with");
  const BackendJob job(*python);
  const auto result = job.alone("wheel.py", {SOURCE_TREE, job.file("wheel")});
  check_every_rank_says(result, 2, "the wheel works");
}

TEST_CASE("PyTorch over ddprun: children that were forked or spawned form a group over a file") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  for (const std::string method : {"fork", "spawn"}) {
    const auto result = job.alone("failures.py", {method, job.file("meeting of " + method)});
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK_THAT(result.out, Catch::Contains(method + ": the group of the children works"));
  }
}

TEST_CASE("PyTorch over ddprun: without a launcher, a group goes on when rank 0 ends, which is not in it") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto result = job.alone("failures.py", {"early_end"});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (const char* said : {"rank 1: goes on", "rank 2: goes on"}) CHECK_THAT(result.out, Catch::Contains(said));
}

TEST_CASE("PyTorch over ddprun: without a launcher, rank 0 may leave before the others, but not die") {
  REQUIRE_TORCH();
  FOR_EACH_BACK_END();
  const auto result = job.alone("orderly_end.py", {job.file("")});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("every rank 0 could leave"));
}

TEST_CASE("PyTorch over ddprun: works, groups, timeouts and errors are the same in C++ and in Python") {
  REQUIRE_TORCH_FOR_PYTHON();
  check_every_rank_says(BackendJob(*python, "1").ranks(3, "python_backend.py", {"compiled"}), 3, "works in C++");
  check_every_rank_says(BackendJob(*python, "0").ranks(3, "python_backend.py", {"python"}), 3, "works in Python");
}

TEST_CASE("PyTorch over ddprun: ranks with the compiled back end and with the one in Python form one group") {
  REQUIRE_TORCH_FOR_PYTHON();
  const BackendJob job(*python, "");
  const auto result = job.ranks(3, "python_backend.py", {"mixed"});
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  for (const char* rank : {"rank 0: works in C++", "rank 1: works in Python", "rank 2: works in C++"})
    CHECK_THAT(result.out, Catch::Contains(rank));
  check_every_rank_says(job.ranks(3, "operations.py", {"mixed"}), 3, "every operation is right");
}

TEST_CASE("PyTorch over ddprun: the interpreter ends while operations wait, or while a thread is in a call") {
  REQUIRE_TORCH_FOR_PYTHON();
  // The processes that crashed did so in two of three runs.
  const std::string extension = GENERATE("0", "1"), how = GENERATE("unfinished", "unfinished", "unfinished", "blocked");
  CAPTURE(extension, how);
  check_every_rank_says(BackendJob(*python, extension).ranks(3, "python_backend.py", {how}), 3, "ends");
}

TEST_CASE("the Python package declares what ddprun.h does") {
  const std::string interpreter = "/usr/bin/python3";
  if (!std::filesystem::exists(interpreter)) SKIP("there is no /usr/bin/python3");
  const auto result = Child({interpreter, PYTHON_TESTS "/capi.py", SOURCE_TREE "/worker/capi/ddprun.h"},
                            {{"PYTHONPATH", PYTHON_PACKAGES}})
                          .wait(std::chrono::seconds(30));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
}

TEST_CASE("PyTorch over ddprun: without a compiler, and where nothing compiles, the back end in Python takes over") {
  REQUIRE_TORCH_FOR_PYTHON();
  const auto [compiler, cache, cause] = GENERATE(table<std::string, std::string, std::string>(
      {{"no-such-compiler", "cache", "there is no compiler 'no-such-compiler'"},
       {"c++ -include no-such-header.h", "cache", "fatal error: no-such-header.h: No such file or directory"},
       {"c++", "/proc/no-such-folder", "no place for its compiled back end"}}));
  const BackendJob job(*python, "");
  const Variables nothing_compiles{{"CXX", compiler},
                                   {"DDPRUN_CACHE_DIR", cache.starts_with('/') ? cache : job.file(cache)}};
  const auto result = job.ranks(3, "python_backend.py", {"fallback"}, nothing_compiles);
  check_every_rank_says(result, 3, "works in Python");
  CHECK_THAT(result.err, Catch::Contains("uses its back end in Python") && Catch::Contains(cause));
  CHECK(result.err.find("uses its back end in Python") == result.err.rfind("uses its back end in Python"));
  // The line appears at most once on this host.
  CHECK(result.err.find("compiling its back end") == result.err.rfind("compiling its back end"));
  const auto refused = BackendJob(*python, "1").ranks(2, "python_backend.py", {"compiled"}, nothing_compiles);
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Catch::Contains("ImportError: ddprun: ") && Catch::Contains(cause));
}
