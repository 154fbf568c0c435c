// Jobs on emulated devices that lack memory, or fail.
#include <csignal>
#include <thread>

#include "tests/process/worker.h"
#include "tests/support/free_port.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Variables = std::map<std::string, std::string>;

Variables devices(const std::string& count, const Variables& more = {}) {
  Variables all{
      {"OMP_NUM_THREADS", "1"}, {"DDPRUN_CUDA_EMULATOR", count}, {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE}};
  all.insert(more.begin(), more.end());
  return all;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The model is 784 -> 256 -> 10: 843 KiB of parameters with the allocator's rounding, twice as much of Adam's state,
// 795 KiB of gradients, 3.3 MiB in all.
const Words job{config("mnist_mlp.cfg"), "--model.hidden=256",     "--data.name=digits",
                "--data.samples=320",    "--data.test_samples=16", "--train.batch_size=8",
                "--eval.batch_size=8",   "--train.max_steps=3",    "--train.device=cuda"};

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

// Returns the only line of an error, of a job of one rank.
std::string error_of(const Words& words, const Variables& variables) {
  const auto result = run_worker(words, variables);
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  const auto lines = lines_with(result.err, "error: ");
  REQUIRE(lines.size() == 1);
  return lines.front();
}

Variables of_rank(int rank, const std::string& port, const Variables& more) {
  auto variables = devices("2", more);
  const auto number = std::to_string(rank);
  variables.insert({{"RANK", number}, {"LOCAL_RANK", number}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}});
  variables.insert({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  return variables;
}

struct Pair {
  Child::Result first, second;
};

// Runs two ranks, the second of which has these variables.
Pair run_pair(const Words& words, const Variables& of_second) {
  const auto port = std::to_string(free_port());
  Child first(joined({DDPRUN_WORKER}, words), of_rank(0, port, {}));
  Child second(joined({DDPRUN_WORKER}, words), of_rank(1, port, of_second));
  Pair result{.first = {}, .second = second.wait(std::chrono::seconds(100))};
  result.first = first.wait(std::chrono::seconds(60));
  return result;
}

constexpr const char* rank_1 = "rank 1 \\(cuda:1, pid [0-9]+ on host [^ ]+\\)";

}  // namespace

TEST_CASE("a device that is too small for parameters, optimizer state, gradients or activations says which") {
  struct Case {
    std::string bytes, wanted_for, held, helps;
  };
  for (const auto& [bytes, wanted_for, held, helps] : std::vector<Case>{
           {"700000", "parameters", "free", "a model with fewer parameters"},
           {"2200000", "optimizer state", "held by parameters 843.1 KiB, optimizer state 843.1 KiB",
            "optim.name = sgd"},
           {"3000000", "gradients", "held by optimizer state 1.6 MiB, parameters 843.1 KiB", "optim.name = sgd"},
           {"3420000", "activations and temporaries",
            "held by optimizer state 1.6 MiB, parameters 843.1 KiB, gradients 795.1 KiB", "a smaller train.batch_size"},
       }) {
    const auto line = error_of(job, devices("1", {{"DDPRUN_CUDA_EMULATOR_MEMORY", bytes}}));
    INFO(line);
    CHECK(std::regex_search(line, std::regex("error: rank 0 \\(cuda:0\\) on host [^ ]+: cuda:0 is out of memory: ")));
    CHECK_THAT(line, Catch::Contains(" are wanted for " + wanted_for + ", "));
    CHECK_THAT(line, Catch::Contains(held));
    CHECK_THAT(line, Catch::Contains("; what helps: ") && Catch::Contains(helps));
  }
}

TEST_CASE("a batch that does not fit says so, and a smaller one with accumulation does") {
  const Variables small{{"DDPRUN_CUDA_EMULATOR_MEMORY", "4060000"}};
  const auto large = joined(job, {"--train.batch_size=160", "--train.max_steps=2"});
  const auto line = error_of(large, devices("1", small));
  CHECK_THAT(line, Catch::Contains(" are wanted for activations and temporaries, ") &&
                       Catch::Contains("what helps: a smaller train.batch_size with a larger train.accumulate"));
  digest_of(run_worker(joined(large, {"--train.batch_size=8", "--train.accumulate=20"}), devices("1", small)));
}

TEST_CASE("an allocation that fails once changes nothing") {
  const auto expected = digest_of(run_worker(job, devices("1")));
  for (const std::string call : {"cudaMallocAsync:1", "cudaMallocAsync:200", "cudaMalloc:1"})
    CHECK(digest_of(run_worker(job, devices("1", {{"DDPRUN_CUDA_EMULATOR_FAIL", call}}))) == expected);
}

TEST_CASE("a rank without enough memory ends with one error, and its peer names it and repeats the error") {
  const auto [first, second] = run_pair(job, {{"DDPRUN_CUDA_EMULATOR_MEMORY", "3420000"}});
  INFO(first.err << second.err);
  CHECK(second.code == 1);
  const auto own = lines_with(second.err, "error: ");
  REQUIRE(own.size() == 1);
  CHECK(std::regex_search(own.front(),
                          std::regex("error: rank 1 \\(cuda:1\\) on host [^ ]+: cuda:1 is out of memory: ")));
  CHECK(first.code != 0);
  const auto others = lines_with(first.err, "error: ");
  REQUIRE(others.size() == 1);
  CHECK(
      std::regex_search(others.front(), std::regex("error: " + std::string(rank_1) + " .*cuda:1 is out of memory: ")));
}

TEST_CASE("under ddprun a rank without enough memory is the root cause, with one error for each rank at most") {
  auto variables = devices("2", {{"DDPRUN_CUDA_EMULATOR_MEMORY", "2200000"}});
  auto result = Child(joined({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"}, job), variables)
                    .wait(std::chrono::seconds(100));
  INFO(result.out << result.err);
  CHECK(result.code == 1);
  // The launcher stops the other rank as soon as one has failed.
  std::size_t of_workers = 0;
  for (const std::string rank : {"0", "1"}) {
    const auto lines = lines_with(result.err, "[ddprun-worker rank " + rank + "] error: rank " + rank + " ");
    CHECK(lines_with(result.err, "[default" + rank + "]:[ddprun-worker rank " + rank + "] error: ").size() <= 1);
    of_workers += lines.size();
  }
  CHECK(of_workers > 0);
  CHECK(
      std::regex_search(result.err, std::regex("traceback : rank ([01]) \\(cuda:\\1\\) on host [^ ]+: cuda:\\1 is out "
                                               "of memory: .* are wanted for optimizer state, ")));
}

TEST_CASE("a fault of a rank's device ends the rank with what CUDA says of it, and its peer names rank and cause") {
  struct Case {
    std::string call, what, says;  // what: CUDA's text, all that a process group has where it is the first to notice
  };
  for (const auto& [call, what, says] : std::vector<Case>{
           {"cudaLaunchKernelExC:60:700", "an illegal memory access was encountered",
            ".*\\(cudaErrorIllegalAddress\\); a kernel that was queued earlier did this, .*; queued last: [a-z_, "
            "0-9]+"},
           {"cudaLaunchKernelExC:60:710", "device-side assert triggered", ".*; queued last: "},
           {"cudaMemcpyAsync:12:214", "uncorrectable ECC error encountered", ".*'NVRM: Xid'"},
           {"cudaLaunchKernelExC:1:209", "no kernel image is available",
            ".* compute capability 9.0, the CUDA module was compiled for the emulator"},
       }) {
    const auto [first, second] = run_pair(joined(job, {"--train.max_steps=20"}), {{"DDPRUN_CUDA_EMULATOR_FAIL", call}});
    INFO(call << "\n" << first.err << second.err);
    CHECK(second.code == 1);
    const auto own = lines_with(second.err, "error: ");
    REQUIRE(own.size() == 1);
    CHECK(std::regex_search(own.front(),
                            std::regex("error: rank 1 \\(cuda:1\\) on host [^ ]+: .* on cuda:1: " + what + says)));
    CHECK(first.code != 0);
    const auto others = lines_with(first.err, "error: ");
    REQUIRE(others.size() == 1);
    CHECK(std::regex_search(others.front(), std::regex("error: " + std::string(rank_1) + " .*" + what)));
  }
}

TEST_CASE("a host without a driver, or with an old one, says so") {
  const auto none = run_worker(job, devices("1", {{"DDPRUN_CUDA_EMULATOR_DRIVER", "0"}}));
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Catch::Contains("there is no NVIDIA driver on this host"));
  const auto old = run_worker(job, devices("1", {{"DDPRUN_CUDA_EMULATOR_DRIVER", "12040"}}));
  CHECK(old.code == 1);
  CHECK_THAT(old.err, Catch::Contains("the driver is for CUDA up to 12.4, the module was built with CUDA 13.0"));
}

TEST_CASE(
    "a library of another version than is needed ends the job with one line that has both versions and its file") {
  const std::string loaded = std::string(" was loaded from ") + EMULATED_CUDA_MODULE + ", ";
  CHECK_THAT(error_of(job, devices("1", {{"DDPRUN_CUDA_EMULATOR_CUBLASLT", "120803"}})),
             Catch::Contains("cuBLASLt 12.8.3" + loaded + "13.x is needed: the CUDA module was built with 13."));
  const Words convolutions{config("mnist.cfg"),      "--data.name=digits",   "--data.samples=32",
                           "--data.test_samples=16", "--train.batch_size=8", "--eval.batch_size=8",
                           "--train.max_steps=1",    "--train.device=cuda"};
  CHECK_THAT(error_of(convolutions, devices("1", {{"DDPRUN_CUDA_EMULATOR_CUDNN", "8907"}})),
             Catch::Contains("cuDNN 8.9.7" + loaded + "9.x is needed: the CUDA module was built with 9."));
  const auto [first, second] = run_pair(job, {{"DDPRUN_CUDA_EMULATOR_NCCL", "21803"}});
  for (const auto& text : {first.err, second.err}) {
    INFO(text);
    const auto lines = lines_with(text, "error: ");
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines.front(), Catch::Contains("rank 1 (on host ") &&
                                  Catch::Contains("NCCL 2.18.3" + loaded + "2.19.3 or newer is needed; "));
  }
}

TEST_CASE("the memory report has what is on the device and what on the host") {
  TempDir dir;
  const auto metrics = dir / "m.jsonl";
  const auto result =
      run_worker(joined(job, {"--train.memory_report=true", "--metrics.file=" + metrics.string()}), devices("1"));
  INFO(result.out << result.err);
  digest_of(result);
  const auto row = [&](const std::string& name) {
    std::smatch match;
    const std::string number = " +([0-9.]+)";
    REQUIRE(std::regex_search(result.out, match, std::regex("\n" + name + number + number + number + number + "\n")));
    return std::vector<double>{std::stod(match[1]), std::stod(match[2]), std::stod(match[3]), std::stod(match[4])};
  };
  const auto all = row("all, at the peak"), device = row("of it cuda:0"), host = row("of it the host");
  // The figure is rounded up by the allocator, and has padding in buckets.
  CHECK(device[0] == Approx(all[0]).margin(0.1));
  CHECK(device[1] == Approx(all[1]).margin(0.1));
  CHECK(device[2] == Approx(all[2]).margin(0.2));
  CHECK(device[3] > 0);
  CHECK(host[0] < 0.1);
  CHECK_THAT(result.out, Catch::Contains("free; held by optimizer state 1.6 MiB, "));
  CHECK_THAT(read_whole_file(metrics), Catch::Contains(R"("device": "cuda:0", "device_bytes": {"parameters": )"));
}
