// scripts/run, and the report of scripts/test about skipped tests.
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/script_file.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::testing;
namespace fs = std::filesystem;

namespace {

const fs::path tree = SOURCE_FOLDER;

// A checkout that is set up: its ddprun prints its arguments.
class Checkout {
 public:
  Checkout() {
    fs::create_directories(folder_ / "scripts");
    fs::copy_file(tree / "scripts/run", folder_ / "scripts/run");
    write_script(folder_ / "scripts/setup", "#!/bin/sh\n");
    write_script(folder_ / "build/bin/ddprun", "#!/bin/sh\necho \"$@\"\n");
  }

  // Returns the command line of ddprun, with the main job's path as MAIN.
  std::string command_of(Words arguments, const Variables& variables = {}) const {
    arguments.insert(arguments.begin(), (folder_ / "scripts/run").string());
    const auto result = run_child(arguments, variables);
    REQUIRE(result.err.empty());
    auto line = lines_of(result.out).at(0);
    const auto main_job = (folder_ / "configs/mnist.cfg").string();
    if (const auto at = line.find(main_job); at != std::string::npos) line.replace(at, main_job.size(), "MAIN");
    return line;
  }

 private:
  TempDir folder_;
};

std::string summary_of(const std::string& log) {
  const TempDir folder;
  write_script(folder / "LastTest.log", log);
  const auto result = run_child({(tree / "scripts/lib/skipped-tests").string(), (folder / "LastTest.log").string()});
  CHECK(result.code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("scripts/run adds options to those of the main job, and replaces those that are given") {
  const Checkout checkout;
  CHECK(checkout.command_of({}) == "--standalone --nproc_per_node=2 MAIN");
  CHECK(checkout.command_of({"--max_restarts=1"}) == "--standalone --nproc_per_node=2 --max_restarts=1 MAIN");
  CHECK(checkout.command_of({"--max_restarts", "1", "a.cfg", "--train.epochs=1"}) ==
        "--standalone --nproc_per_node=2 --max_restarts 1 a.cfg --train.epochs=1");
  CHECK(checkout.command_of({"--nproc_per_node=4"}) == "--standalone --nproc_per_node=4 MAIN");
  CHECK(checkout.command_of({"--nproc-per-node", "4", "--train.epochs=1"}) ==
        "--standalone --nproc-per-node 4 MAIN --train.epochs=1");
  CHECK(checkout.command_of({"--nnodes=2", "--rdzv_endpoint=a:1"}) ==
        "--nproc_per_node=2 --nnodes=2 --rdzv_endpoint=a:1 MAIN");
  CHECK(checkout.command_of({"--hosts=a,b"}) == "--nproc_per_node=2 --hosts=a,b MAIN");
  CHECK(checkout.command_of({}, {{"PET_NPROC_PER_NODE", "3"}}) == "--standalone MAIN");
}

TEST_CASE("skipped tests are counted by reason, in the words of either version of Catch2") {
  CHECK(summary_of("1/4 Testing: a\nSKIPPED: no MPI is installed\nTest time = 0.01 sec\n"
                   "2/4 Testing: b\n/x/y_test.cc:29: SKIPPED:\nexplicitly with message:\n  no MPI is installed\n\n"
                   "3/4 Testing: c\nSKIPPED: there is no bash here\n"
                   "4/4 Testing: d\nAll tests passed\n") ==
        "test: 3 skipped:\n     2  no MPI is installed\n     1  there is no bash here\n");
  CHECK(summary_of("1/1 Testing: a\nAll tests passed\n").empty());
}
