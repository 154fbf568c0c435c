// ddprun::torch: programs of libtorch, built against an installed ddprun as a user builds them, trained, killed,
// resumed.
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <sys/wait.h>

#include "common/environment.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/random_kills.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{400};

std::string program(const std::string& name) {
  return LIBTORCH_PROGRAMS "/build/" + name;
}

constexpr auto no_libtorch = "no PyTorch for C++ here: libtorch-dev, or DDPRUN_TORCH_PYTHON";

// ctest has built the programs before, where that is possible.
#define REQUIRE_LIBTORCH() \
  if (!std::filesystem::exists(program("digits"))) SKIP(no_libtorch)

// Fills the folder with IDX files: the real digits where they exist, otherwise random ones. Returns its path.
std::string digits_in(const TempDir& folder) {
  const auto data = Environment::capture().get("DDPRUN_TEST_DATA");
  const auto real = data.value_or("") + "/mnist-10k/";
  if (std::filesystem::exists(real + "train-images-idx3-ubyte.gz")) {
    for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
      REQUIRE(Child({"/bin/sh", "-c", R"(gzip -dc "$0" >"$1")", real + name + ".gz", (folder / name).string()})
                  .wait()
                  .code == 0);
    return folder.path().string();
  }
  std::mt19937 random(1);
  const auto write = [&](const std::string& name, std::size_t header, std::size_t count, unsigned below) {
    std::ofstream out(folder / name, std::ios::binary);
    out << std::string(header, '\0');
    for (std::size_t i = 0; i < count; ++i) out << static_cast<char>(random() % below);
  };
  write("train-images-idx3-ubyte", 16, std::size_t{3000} * 784, 256);
  write("train-labels-idx1-ubyte", 8, 3000, 10);
  return folder.path().string();
}

Words launch(int ranks, Words words) {
  Words all{DDPRUN_PROGRAM, "--standalone", "--max_restarts=1", "--nproc_per_node=" + std::to_string(ranks)};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// Returns the losses by "rank R step S"; the last one of a repeated step.
std::map<std::string, double> losses_of(const std::string& out) {
  std::map<std::string, double> losses;
  const std::regex line("(rank [0-9]+ step [0-9]+) loss ([0-9.]+)");
  for (std::sregex_iterator found(out.begin(), out.end(), line), end; found != end; ++found)
    losses[(*found)[1]] = std::stod((*found)[2]);
  return losses;
}

void check_close(const std::map<std::string, double>& mine, const std::map<std::string, double>& others) {
  CHECK(mine.size() == others.size());
  for (const auto& [step, loss] : others) {
    CAPTURE(step, loss);
    REQUIRE(mine.contains(step));
    CHECK(std::abs(mine.at(step) - loss) <= 1e-6 * std::abs(loss) + 2e-9);  // printed with nine decimals
  }
}

}  // namespace

TEST_CASE("libtorch: two processes of one program average their gradients") {
  REQUIRE_LIBTORCH();
  const auto result = Child({program("two_ranks")}).wait(timeout);
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("step 100  loss 0.0000"));
}

TEST_CASE("libtorch: passes that are not all alike, over shared memory and over Gloo") {
  REQUIRE_LIBTORCH();
  for (const std::string backend : {"shm", "gloo"}) {
    const auto result = Child(launch(2, {program("passes"), backend})).wait(timeout);
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK_THAT(result.out, Catch::Contains("rank 1: the passes are right over " + backend));
  }
}

TEST_CASE("libtorch: digits with 2 and 4 ranks, the losses of PyTorch's DistributedDataParallel") {
  REQUIRE_LIBTORCH();
  const auto python = find_torch({1, 9});
  if (!python) SKIP("no python3 here has torch");
  const TempDir folder;
  const auto data = digits_in(folder);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks, python->version_text);
    const auto checkpoint = (folder / ("checkpoint of " + std::to_string(ranks))).string();
    const auto mine = Child(launch(ranks, {program("digits"), data, "20", checkpoint})).wait(timeout);
    INFO(mine.out << mine.err);
    REQUIRE(mine.code == 0);
    const auto peer = Child(launch(ranks, {"--no_agent_store", LIBTORCH_TESTS "/digits_peer.py", data, "20"}),
                            {{"PYTHON_EXEC", python->path}, {"GLOO_SOCKET_IFNAME", "lo"}, {"OMP_NUM_THREADS", "1"}})
                          .wait(timeout);
    INFO(peer.out << peer.err);
    REQUIRE(peer.code == 0);
    const auto losses = losses_of(mine.out);
    CHECK(losses.size() == static_cast<std::size_t>(20 * ranks));
    check_close(losses, losses_of(peer.out));
  }
}

TEST_CASE("libtorch: a rank is killed, and the job resumes to the losses of an undisturbed one") {
  REQUIRE_LIBTORCH();
  const TempDir folder;
  const auto data = digits_in(folder);
  const auto undisturbed =
      Child(launch(2, {program("digits"), data, "30", (folder / "undisturbed").string(), "bf16"})).wait(timeout);
  INFO(undisturbed.out << undisturbed.err);
  REQUIRE(undisturbed.code == 0);

  Child job(launch(2, {program("digits"), data, "30", (folder / "killed").string(), "bf16"}));
  job.wait_for_out("rank 1 step 5 ", timeout);
  std::smatch found;
  const auto so_far = job.out();
  REQUIRE(std::regex_search(so_far, found, std::regex("rank 1 of 2, pid ([0-9]+)")));
  REQUIRE(::kill(std::stoi(found[1]), SIGKILL) == 0);
  const auto result = job.wait(timeout);
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Catch::Contains("SIGKILL"));
  const auto losses = losses_of(result.out);
  auto expected = losses_of(undisturbed.out);
  // The checkpoint may have a step whose loss the killed rank did not live to print.
  REQUIRE(std::regex_search(result.out, found, std::regex("rank 1 of 2, pid [0-9]+, begins at step ([1-9][0-9]*)")));
  const auto unprinted = "rank 1 step " + found[1].str();
  if (!losses.contains(unprinted)) expected.erase(unprinted);
  check_close(losses, expected);
}

TEST_CASE("libtorch: twenty kills of random ranks, the same losses, and the others keep their processes") {
  REQUIRE_LIBTORCH();
  const auto command = [](const std::string& steps) -> Words {
    return {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--max_restarts=20", program("recovery"), steps};
  };
  check_survives_kills({.command = command, .variables = {{"OMP_NUM_THREADS", "1"}}}, 20);
}
