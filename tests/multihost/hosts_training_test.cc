#include <csignal>
#include <filesystem>

#include "tests/multihost/hosts.h"
#include "tests/support/host_network.h"

// Training on two hosts whose ranks share no memory, so that the gradients cross the link, with faults of hosts, links
// and workers. All results are compared bit for bit.
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{100};

// ddprun sets this variable for several ranks on a host, and the bits depend on it.
const Variables one_thread{{"OMP_NUM_THREADS", "1"}};

void need_isolated_hosts() {
  need_hosts();
  if (const auto why = NetnsHosts::why_not_isolated(); !why.empty()) SKIP(why);
}

// A back end of several hosts, and the number of ranks on each host.
struct Backend {
  std::string name;
  int ranks_per_host;
};
const std::vector<Backend> backends_of_hosts{{"gloo", 1}, {"hierarchical", 2}};

// Two hosts in one training job. Only one object may exist at a time: the names of its hosts contain this process's id.
class TrainingHosts {
 public:
  explicit TrainingHosts(Backend backend, const Words& overrides = {})
      : backend_(std::move(backend)), overrides_(overrides) {
    overrides_.push_back("--dist.backend=" + backend_.name);
  }

  Child start(int host, const Words& options = {}) const { return start_at(host, hosts.endpoint(), options); }
  Child start_at(int host, const std::string& endpoint, const Words& options = {}) const {
    Words launch{"--nnodes=2", "--nproc_per_node=" + std::to_string(backend_.ranks_per_host), "--shutdown_timeout=5",
                 "--rdzv_endpoint=" + endpoint};
    launch.insert(launch.end(), options.begin(), options.end());
    auto variables = one_thread;
    variables.merge(training.marker.variables());
    return Child(Hosts::behind(hosts.net.enter_isolated(host), training.job(launch, overrides_)), variables);
  }

  // Bytes that the host has sent over its link so far.
  std::uint64_t sent(int host) const {
    const InNetwork network(hosts.net.network(host));
    return bytes_sent("eth0");
  }
  // The size of all parameters, which is that of all gradients: a lower bound of the checkpoint file's size.
  std::uint64_t gradient_bytes() const {
    for (const auto& entry : std::filesystem::directory_iterator(training.folder / "checkpoints"))
      if (const auto file = entry.path() / "model.safetensors"; std::filesystem::exists(file))
        return std::filesystem::file_size(file) * 9 / 10;
    return 0;
  }

  Hosts hosts{2};
  Training training;

 private:
  const Backend backend_;
  Words overrides_;
};

// The digest that the jobs of both hosts print at the end.
std::string joint_parameters(Child& first, Child& second) {
  const auto a = first.wait(timeout);
  const auto b = second.wait(timeout);
  INFO(a.out << a.err << b.out << b.err);
  REQUIRE(a.code == 0);
  REQUIRE(b.code == 0);
  const auto digest = parameters_of(a.out + b.out);
  REQUIRE(digest.size() == 64);
  return digest;
}

std::string parameters_of_hosts(const Backend& backend, const Words& overrides = {}) {
  const TrainingHosts two(backend, overrides);
  auto first = two.start(0);
  auto second = two.start(1);
  return joint_parameters(first, second);
}

// The digest of two ranks that share memory. A sum of two gradients has only one order, so it is the same with every
// back end.
std::string parameters_of_shared_memory(Words overrides = {}) {
  overrides.push_back("--dist.backend=shm");
  const Training training;
  const auto result = Child(training.job({"--standalone", "--nproc_per_node=2"}, overrides), one_thread).wait(timeout);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// Returns the digest without faults, in another run or over another back end.
std::string expected_parameters(const Backend& backend, const Words& overrides = {}) {
  return backend.ranks_per_host == 1 ? parameters_of_shared_memory(overrides) : parameters_of_hosts(backend, overrides);
}

// There are 20 steps of a batch of 32 on every rank, in several buckets, each followed by a comparison of parameters.
constexpr int steps = 20;
Words steps_in_buckets(const Backend& backend) {
  return {"--train.epochs=1", "--data.samples=" + std::to_string(steps * 32 * 2 * backend.ranks_per_host),
          "--dist.bucket_mb=0.02", "--train.check_replicas=true"};
}

void wait_for_checkpoint(Child& job, const TrainingHosts& two) {
  job.wait_until([&] { return two.training.checkpoints() > 0; }, "a checkpoint", timeout);
}

}  // namespace

TEST_CASE("training over Gloo and hierarchical: several buckets, equal replicas, the gradients cross the link") {
  need_isolated_hosts();
  for (const auto& backend : backends_of_hosts) {
    INFO(backend.name);
    const auto overrides = steps_in_buckets(backend);
    const auto expected = expected_parameters(backend, overrides);
    const TrainingHosts two(backend, overrides);
    const std::uint64_t before[] = {two.sent(0), two.sent(1)};
    auto first = two.start(0);
    auto second = two.start(1);
    CHECK(joint_parameters(first, second) == expected);
    REQUIRE(two.gradient_bytes() > 50'000);
    for (const int host : {0, 1}) CHECK(two.sent(host) - before[host] >= steps * two.gradient_bytes());
  }
}

TEST_CASE("a slow link does not change the result of a training") {
  need_isolated_hosts();
  const Backend gloo{"gloo", 1};
  const auto overrides = steps_in_buckets(gloo);
  TrainingHosts two(gloo, overrides);
  two.hosts.net.limit(1, "200mbit");
  const auto before = two.sent(1);
  auto first = two.start(0);
  auto second = two.start(1);
  CHECK(joint_parameters(first, second) == parameters_of_shared_memory(overrides));
  CHECK(two.sent(1) - before >= steps * two.gradient_bytes());
}

namespace {

// Kills rank 1 once there is a checkpoint. Returns what the first host's agent has logged, and
// whether rank 0 kept its process.
struct KilledOnOneHost {
  std::string log;
  bool kept;
};

KilledOnOneHost kill_on_one_host(const Backend& backend, const Words& options) {
  const auto expected = expected_parameters(backend);
  const TrainingHosts two(backend);
  auto first = two.start(0, options);
  auto second = two.start(1, options);
  wait_for_checkpoint(second, two);
  const auto others = workers_of(two.training.marker, "0");
  const auto workers = workers_of(two.training.marker, "1");
  REQUIRE((others.size() == 1 && workers.size() == 1));
  REQUIRE(::kill(workers.front(), SIGKILL) == 0);
  bool kept = true;
  first.wait_until(
      [&] {
        const auto now = workers_of(two.training.marker, "1");
        if (now.empty() || now == workers) return false;
        kept = workers_of(two.training.marker, "0") == others;
        return true;
      },
      "another worker", timeout);
  CHECK(joint_parameters(first, second) == expected);
  return {first.err(), kept};
}

}  // namespace

TEST_CASE(
    "a worker of one host is killed during the training: that of the other host goes on over Gloo and hierarchical") {
  need_isolated_hosts();
  for (const auto& backend : backends_of_hosts) {
    INFO(backend.name);
    const auto killed = kill_on_one_host(backend, {"--max_restarts=1"});
    CHECK(killed.kept);
    CHECK(killed.log.find("restart 1 of 1: a replacement for this rank alone") != std::string::npos);
    CHECK(killed.log.find("new round") == std::string::npos);
  }
}

TEST_CASE("a worker of one host is killed during the training, which resumes from its checkpoint with --restart=all") {
  need_isolated_hosts();
  for (const auto& backend : backends_of_hosts) {
    INFO(backend.name);
    const auto killed = kill_on_one_host(backend, {"--max_restarts=1", "--restart=all"});
    CHECK(killed.log.find("new round") != std::string::npos);
  }
}

TEST_CASE(
    "the store's host loses power during the training and is restarted: the training resumes from its checkpoint") {
  need_isolated_hosts();
  for (const auto& backend : backends_of_hosts) {
    INFO(backend.name);
    const auto expected = expected_parameters(backend);
    const TrainingHosts two(backend);
    const Words options{"--max_restarts=1", "--rdzv_conf=store_timeout=120"};
    auto first = two.start(0, options);
    auto second = two.start(1, options);
    wait_for_checkpoint(second, two);
    first.signal(SIGKILL);
    first.wait(timeout);
    second.wait_for_err("lost the rendezvous server at " + two.hosts.endpoint(), timeout);
    auto again = two.start(0, options);
    CHECK(joint_parameters(again, second) == expected);
  }
}

TEST_CASE("training over IPv6") {
  need_isolated_hosts();
  const Backend gloo{"gloo", 1};
  const auto overrides = steps_in_buckets(gloo);
  const TrainingHosts two(gloo, overrides);
  const auto endpoint = "[" + two.hosts.net.address6(0) + "]:29400";
  auto first = two.start_at(0, endpoint);
  auto second = two.start_at(1, endpoint);
  CHECK(joint_parameters(first, second) == parameters_of_shared_memory(overrides));
}

TEST_CASE("auto chooses hierarchical for hosts whose ranks share no memory with those of the other") {
  need_isolated_hosts();
  const Backend automatic{"auto", 2};
  const TrainingHosts two(automatic, {"--train.epochs=1", "--data.samples=640"});
  auto first = two.start(0);
  auto second = two.start(1);
  joint_parameters(first, second);
  CHECK((first.out() + second.out() + first.err() + second.err())
            .find("back end hierarchical: the 4 ranks run on 2 hosts") != std::string::npos);
}
