// The process groups that jobs of train.device = cuda use, on emulated devices.
#include <map>
#include <memory>
#include <sstream>

#include "tests/process/worker.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Variables = std::map<std::string, std::string>;

Variables devices(const std::string& count) {
  return {{"OMP_NUM_THREADS", "1"}, {"DDPRUN_CUDA_EMULATOR", count}, {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE}};
}

// A small job of a few steps.
Words job(const Words& more = {}) {
  Words words{config("mnist_mlp.cfg"), "--model.hidden=32 16",   "--data.name=digits",
              "--data.samples=320",    "--data.test_samples=16", "--train.batch_size=8",
              "--eval.batch_size=8",   "--train.max_steps=6",    "--train.device=cuda"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Child::Result train(int ranks, const Words& words, const Variables& variables) {
  Words all{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  all.insert(all.end(), words.begin(), words.end());
  auto result = Child(all, variables).wait(std::chrono::seconds(100));
  result.out = without_prefixes(result.out);
  return result;
}

// Two ranks without a launcher, each of which sees its own list of devices and uses the one of its local rank.
struct Rank {
  std::string visible, local_rank;
};
std::pair<Child::Result, Child::Result> train_with(const Rank& first, const Rank& second) {
  const auto port = std::to_string(free_port());
  const auto start = [&](const std::string& rank, const Rank& place) {
    auto variables = devices("2");
    variables.insert({{"RANK", rank}, {"LOCAL_RANK", place.local_rank}, {"WORLD_SIZE", "2"}});
    variables.insert({{"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    variables.insert({"CUDA_VISIBLE_DEVICES", place.visible});
    Words words{DDPRUN_WORKER};
    const auto arguments = job();
    words.insert(words.end(), arguments.begin(), arguments.end());
    return std::make_unique<Child>(words, variables);
  };
  const auto one = start("0", first), other = start("1", second);
  return {one->wait(std::chrono::seconds(100)), other->wait(std::chrono::seconds(100))};
}

std::vector<std::string> lines_with(const std::string& part, const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.find(part) != std::string::npos) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("with dist.backend = auto gradients on devices take NCCL, values of the host a group beside it") {
  const auto automatic = train(2, job(), devices("2"));
  CHECK(lines_with("back end nccl: for device memory", automatic.err).size() == 1);
  CHECK(lines_with("back end shm: the 2 ranks run on one host", automatic.err).size() == 1);
  const auto by_name = train(2, job({"--dist.backend=nccl"}), devices("2"));
  CHECK(digest_of(by_name) == digest_of(automatic));
  CHECK(digest_of(train(2, job({"--dist.backend=gloo"}), devices("2"))) == digest_of(automatic));
}

TEST_CASE("a failure of NCCL in the middle of a training names the rank, its device and its host") {
  auto variables = devices("2");
  variables["DDPRUN_CUDA_EMULATOR_FAIL"] = "ncclAllReduce:4";
  const auto result = train(2, job(), variables);
  CHECK(result.code != 0);
  INFO(result.err);
  CHECK(std::regex_search(result.err, std::regex("ncclAllReduce failed on cuda:[01]: unhandled cuda error")));
  CHECK(std::regex_search(result.err, std::regex("rank +: ([01]) \\(local_rank: \\1, cuda:\\1\\)")));
  CHECK(std::regex_search(result.err, std::regex("host +: [^ \n]+")));
}

TEST_CASE("ranks that share devices say so in one line, with their numbers and the bus ids") {
  const auto result = train(3, job(), devices("2"));
  digest_of(result);
  const auto lines = lines_with("NCCL", result.err);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::StartsWith("[default0]:"));
  CHECK_THAT(lines[0], Catch::Contains("ranks 0 and 2 share the device 0000:01:00.0 of host "));
  CHECK_THAT(lines[0], Catch::EndsWith(", which NCCL refuses"));
  CHECK(lines_with("back end ", result.err).size() == 1);
}

TEST_CASE("whether ranks share a device does not depend on what their processes call it") {
  const auto [shares, other] = train_with({"0,1", "0"}, {"1,0", "1"});
  CHECK(other.code == 0);
  CHECK(lines_with("ranks 0 and 1 share the device 0000:01:00.0 of host ", shares.err).size() == 1);
  CHECK(lines_with("NCCL", other.err).empty());
  const auto [apart, second] = train_with({"0", "0"}, {"1", "0"});
  CHECK(second.code == 0);
  CHECK(digest_of(apart) == digest_of(shares));  // only rank 0 prints it
  CHECK(lines_with("back end nccl: for device memory", apart.err).size() == 1);
  CHECK(lines_with("share the device", apart.err).empty());
}
