// Training on the emulated devices of two hosts with two ranks each: they learn what the CPU learns, and a host that is
// lost is named. A host is a network and a process-id namespace: its ranks share no memory with the other's except that
// of the emulated NCCL, which takes them for ranks of different hosts by NCCL_HOSTID.
#include <algorithm>
#include <regex>

#include "tests/multihost/hosts.h"
#include "tests/support/step_records.h"

using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{100};
constexpr std::size_t steps = 8;

void need_isolated_hosts() {
  need_hosts();
  if (const auto why = NetnsHosts::why_not_isolated(); !why.empty()) SKIP(why);
}

Words small_job(const Words& more) {
  Words words{DDPRUN_CONFIGS "/mnist_mlp.cfg", "--model.hidden=32 16", "--data.name=digits", "--data.samples=640",
              "--data.test_samples=16",        "--train.batch_size=8", "--eval.batch_size=8"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Words few_steps(const std::string& device) {
  return {"--train.max_steps=" + std::to_string(steps), "--train.device=" + device};
}

struct Run {
  std::string out, err;
  StepRecords records;
};

// A job on both hosts, each of which has this many devices.
class DeviceHosts {
 public:
  explicit DeviceHosts(int devices) : devices_(devices) {}

  std::unique_ptr<Child> start(int host, const Words& more) const {
    Words words{DDPRUN_PROGRAM,       "--nnodes=2",           "--node_rank=" + std::to_string(host),
                "--nproc_per_node=2", "--shutdown_timeout=5", "--rdzv_endpoint=" + hosts_.endpoint()};
    const auto job = small_job(more);
    words.insert(words.end(), job.begin(), job.end());
    words.push_back("--metrics.file=" + metrics().string());
    auto variables = hosts_.marker.variables();
    variables.insert({{"OMP_NUM_THREADS", "1"},
                      {"DDPRUN_CUDA_EMULATOR", std::to_string(devices_)},
                      {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE},
                      {"NCCL_HOSTID", "host " + std::to_string(host)}});
    return std::make_unique<Child>(Hosts::behind(hosts_.net.enter_isolated(host), words), variables);
  }
  std::filesystem::path metrics() const { return hosts_.folder / "metrics"; }

 private:
  const int devices_;
  Hosts hosts_{2};
};

Run run_on_hosts(int devices, const std::string& device) {
  const DeviceHosts hosts(devices);
  const auto first = hosts.start(0, few_steps(device)), second = hosts.start(1, few_steps(device));
  const auto a = first->wait(timeout), b = second->wait(timeout);
  INFO(a.err << b.err);
  REQUIRE(a.code == 0);
  REQUIRE(b.code == 0);
  return {a.out + b.out, a.err + b.err, read_records(hosts.metrics())};
}

std::size_t count(const std::string& part, const std::string& text) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the devices of two hosts learn what the CPU learns, over NCCL and staged through memory of the hosts") {
  need_isolated_hosts();
  const auto on_cpu = run_on_hosts(2, "cpu");
  CHECK(on_cpu.records.losses.back() < on_cpu.records.losses.front());

  const auto over_nccl = run_on_hosts(2, "cuda");
  CHECK(largest_difference(on_cpu.records.losses, over_nccl.records.losses, steps) < 1e-5);
  CHECK(count("back end nccl: for device memory", over_nccl.err) == 1);
  CHECK(count("back end hierarchical: the 4 ranks run on 2 hosts", over_nccl.err) == 1);
  CHECK(over_nccl.records.bytes_sent.back() > 0);

  const auto staged = run_on_hosts(1, "cuda");
  CHECK(largest_difference(on_cpu.records.losses, staged.records.losses, steps) < 1e-5);
  CHECK(std::regex_search(staged.err, std::regex("ranks 0 and 1 share the device 0000:01:00.0 of host [^ ]+, ranks 2 "
                                                 "and 3 the device 0000:01:00.0 of host [^ ]+, which NCCL refuses")));
  CHECK(count("which NCCL refuses", staged.err) == 1);
  CHECK(count("back end nccl", staged.err) == 0);
  CHECK(staged.records.bytes_sent.back() > 0);
}

TEST_CASE("a host that loses power while its devices train is named on the other host") {
  need_isolated_hosts();
  for (const int devices : {2, 1}) {  // over NCCL; staged
    INFO(devices << " devices");
    const DeviceHosts hosts(devices);
    const Words endless{"--train.max_steps=0", "--train.epochs=100000", "--train.device=cuda"};
    const auto first = hosts.start(0, endless), second = hosts.start(1, endless);
    const auto trains = [&] {
      return std::filesystem::exists(hosts.metrics()) && read_records(hosts.metrics()).losses.size() > 2;
    };
    first->wait_until(trains, "a few steps", timeout);
    second->signal(SIGKILL);
    const auto result = first->wait(std::chrono::seconds(40));
    INFO(result.err);
    CHECK(result.code != 0);
    // The failure is reported by the agent, or by a rank that was faster.
    const std::regex by_agent("error: node [^ ]+ was lost: [^\n]*\\(ranks 2-3\\)"),
        by_rank("error: rank [23] \\(cuda:[01], pid [0-9]+ on host [^)]+\\)");
    CHECK((std::regex_search(result.err, by_agent) || std::regex_search(result.err, by_rank)));
  }
}
