// Profiles of jobs on emulated CUDA devices.
#include <cmath>

#include "tests/process/trace_check.h"
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The job is small, since each thread of a device is a fibre.
const Words digits{"--train.device=cuda",  "--data.name=digits",  "--data.samples=160",  "--data.test_samples=16",
                   "--train.batch_size=8", "--eval.batch_size=8", "--train.max_steps=8", "--dist.bucket_mb=0.01"};

// Runs a job of that many ranks on that many devices.
Child::Result run_on(int ranks, int devices, const Words& words) {
  Words program;
  if (ranks > 1) program = {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  program.push_back(DDPRUN_WORKER);
  program.insert(program.end(), words.begin(), words.end());
  program.insert(program.end(), digits.begin(), digits.end());
  auto result = Child(program, {{"OMP_NUM_THREADS", "1"},
                                {"DDPRUN_CUDA_EMULATOR", std::to_string(devices)},
                                {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE}})
                    .wait(std::chrono::seconds(250));
  result.out = without_prefixes(result.out);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  return result;
}

// Returns the numbers of a rank's line in the table of that name.
std::vector<double> numbers_of(const std::string& out, const std::string& table, int rank) {
  std::smatch match;
  const std::regex line("\n" + table + " [^\n]*\n(?:[0-9]+ \\([^\n]*\n)*?" + std::to_string(rank) +
                        " \\([^)]*\\)([-0-9. ]+)");
  REQUIRE(std::regex_search(out, match, line));
  std::istringstream text(match[1]);
  std::vector<double> numbers;
  for (double number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

// A page's lines about a rank, in ms a step.
struct RankLines {
  double step, data, forward, backward, optimizer, exposed, hidden;
  double compute, communication, overlap, copies, host, paced;  // those of the device
};

RankLines lines_of(const std::string& out, int rank) {
  const auto times = numbers_of(out, "ms a step of rank", rank), use = numbers_of(out, "ms a step of device", rank);
  REQUIRE(times.size() == 8);
  REQUIRE(use.size() == 6);
  return {times[0], times[1], times[2], times[3], times[4], times[5], times[6],
          use[0],   use[1],   use[2],   use[3],   use[4],   use[5]};
}

void check_lines(const RankLines& lines, int ranks) {
  constexpr double rounding = 0.01 * 7;  // for the numbers that are added
  CHECK(std::abs(lines.data + lines.copies + lines.forward + lines.backward + lines.optimizer + lines.exposed -
                 lines.step) <= rounding);
  CHECK(std::abs(lines.forward + lines.backward + lines.optimizer - lines.compute) <= rounding);
  CHECK(lines.forward > 0);
  CHECK(lines.backward > 0);
  CHECK(lines.optimizer > 0);
  CHECK(lines.host > 0);
  CHECK(lines.overlap >= 0);
  CHECK(lines.overlap <= 100);
  CHECK(lines.paced >= 0);
  CHECK(lines.paced <= 100);
  CHECK(lines.hidden <= lines.communication + rounding);
  CHECK((lines.communication > 0) == (ranks > 1));
}

const std::vector<std::string> rows{"host", "device: compute queue", "device: communication queue", "device: copies"};

void check_rows(TraceContents contents, int ranks) {
  CHECK(std::ssize(contents.processes) == ranks);
  for (auto& [process, events] : contents.rows) {
    CHECK(events.size() == rows.size());
    for (const auto& row : rows) CHECK((events[row] > 0) == (ranks > 1 || row != rows[2]));
  }
}

}  // namespace

TEST_CASE("a job that is profiled on emulated devices trains as without, and shows its queues") {
  for (const auto& [ranks, devices] : {std::pair(1, 1), std::pair(2, 2), std::pair(2, 1)}) {
    INFO(ranks << " ranks on " << devices << " devices");
    const TempDir folder;
    const auto trace = folder / "trace.json";
    const Words job{config("mnist.cfg")};
    const auto plain = run_on(ranks, devices, job);
    const auto profiled = run_on(
        ranks, devices, {job[0], "--profile.warmup=2", "--profile.steps=4", "--profile.trace=" + trace.string()});
    CHECK(digest_of(profiled) == digest_of(plain));
    INFO(profiled.out);
    CHECK_THAT(profiled.out, Catch::Contains("\nprofile of 4 steps with 8 samples a rank"));
    for (const std::string pass : {"forward", "backward"})
      CHECK(std::regex_search(profiled.out, std::regex("\nconv2d +" + pass + " +[a-z0-9.]+ +1 [^\n]+\n")));
    CHECK_THAT(profiled.out, Catch::Contains("\nbottleneck: "));
    CHECK((profiled.out.find("\noverlap of rank 0: of ") != std::string::npos) == (ranks > 1));
    for (int rank = 0; rank < ranks; ++rank) check_lines(lines_of(profiled.out, rank), ranks);
    check_rows(check_trace(boost::json::parse(read_whole_file(trace))), ranks);
  }
}

TEST_CASE("the profile of a device measures its products, and a larger batch on it") {
  const auto result = run_on(1, 1, {"profile", config("mnist.cfg"), "--profile.warmup=1", "--profile.steps=2"});
  INFO(result.out);
  CHECK_THAT(result.out, Catch::Contains("rank 0 trains on cuda:0, an emulated device"));
  CHECK(std::regex_search(result.out, std::regex("\nproducts and convolutions: [0-9.]+ GFLOP/s, [0-9]+ % of the ")));
  CHECK_THAT(result.out, Catch::Contains("\nwith 16 samples a rank: "));
  check_lines(lines_of(result.out, 0), 1);
}
