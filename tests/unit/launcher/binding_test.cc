#include "launcher/placement/binding.h"

#include "common/error.h"
#include "launcher/placement/placement.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/fake_machine.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns two packages, four nodes, eight caches, 32 cores of two threads: node n has CPUs 8n..8n+7 and 8n+32..8n+39.
Topology big_machine(const CpuList& allowed = first_cpus(64)) {
  Topology machine;
  for (int core = 0; core < 32; ++core) {
    const auto usable = intersection({core, core + 32}, allowed);
    if (!usable.empty())
      machine.cores.push_back({.cpus = usable, .package = core / 16, .node = core / 8, .cache = core / 4 * 4});
  }
  return machine;
}

// Returns that machine with GPUs, some of them visible: 4 and 5 on node 0, 6 and 7 on 1, 0 and 1 on 2, 2 and 3 on 3.
Topology gpu_machine(const std::vector<int>& visible = first_cpus(8), const CpuList& allowed = first_cpus(64)) {
  auto machine = big_machine(allowed);
  for (const int gpu : visible)
    machine.gpus.push_back({.name = std::to_string(gpu), .address = "", .node = (gpu / 2 + 2) % 4});
  return machine;
}

Topology plain_machine(int cores) {
  Topology machine;
  for (int core = 0; core < cores; ++core) machine.cores.push_back({.cpus = {core}});
  return machine;
}

std::vector<std::string> sets(const Division& division) {
  std::vector<std::string> result;
  for (const auto& worker : division.workers) result.push_back(format_cpu_list(worker.cpus));
  return result;
}

std::vector<int> threads(const Division& division) {
  std::vector<int> result;
  for (const auto& worker : division.workers) result.push_back(worker.threads);
  return result;
}

Environment with_threads(const std::string& number) {
  Environment environment;
  environment.set("OMP_NUM_THREADS", number);
  return environment;
}

using Sets = std::vector<std::string>;
using Counts = std::vector<int>;

}  // namespace

TEST_CASE("unbound workers share all cores, and the threads of each are its part of them") {
  const auto division = divide(big_machine(), 4, Binding::none);
  CHECK(sets(division) == Sets(4, ""));
  CHECK(threads(division) == Counts(4, 8));
  CHECK(division.workers[0].nodes == Counts{0, 1, 2, 3});
  CHECK(threads(divide(plain_machine(8), 3, Binding::none)) == Counts(3, 2));
  CHECK(threads(divide(plain_machine(6), 6, Binding::none)) == Counts(6, 1));
  CHECK(threads(divide(plain_machine(2), 5, Binding::none)) == Counts(5, 1));
  CHECK(division.notices.empty());
}

TEST_CASE("a quota limits the threads, but never below one") {
  CHECK(threads(divide(big_machine(), 4, Binding::none, 8.0)) == Counts(4, 2));
  CHECK(threads(divide(big_machine(), 4, Binding::none, 7.5)) == Counts(4, 1));
  CHECK(threads(divide(big_machine(), 4, Binding::none, 0.5)) == Counts(4, 1));
  CHECK(threads(divide(big_machine(), 4, Binding::none, 500.0)) == Counts(4, 8));
  CHECK(threads(divide(big_machine(), 4, Binding::cores, 8.0)) == Counts(4, 2));
}

TEST_CASE("bind cores: adjacent whole cores, the first workers get the remainder") {
  CHECK(sets(divide(big_machine(), 4, Binding::cores)) ==
        Sets{"0-7,32-39", "8-15,40-47", "16-23,48-55", "24-31,56-63"});
  const auto uneven = divide(plain_machine(8), 3, Binding::cores);
  CHECK(sets(uneven) == Sets{"0-2", "3-5", "6-7"});
  CHECK(threads(uneven) == Counts{3, 3, 2});
  CHECK(uneven.notices.empty());
  CHECK(sets(divide(plain_machine(3), 1, Binding::cores)) == Sets{"0-2"});
}

TEST_CASE("bind cores: more workers than cores share cores, and a notice says so") {
  const auto division = divide(plain_machine(2), 5, Binding::cores);
  CHECK(sets(division) == Sets{"0", "0", "0", "1", "1"});
  CHECK(threads(division) == Counts(5, 1));
  CHECK(division.notices == Sets{"--bind = cores: more workers (5) than cores (2); several share one"});
}

TEST_CASE("bind l3, numa and socket: one for each worker, spread evenly over the machine") {
  CHECK(sets(divide(big_machine(), 2, Binding::numa)) == Sets{"0-7,32-39", "16-23,48-55"});
  const auto eight = divide(big_machine(), 8, Binding::numa);
  CHECK(sets(eight)[0] == "0-7,32-39");
  CHECK(sets(eight)[1] == "0-7,32-39");
  CHECK(sets(eight)[2] == "8-15,40-47");
  CHECK(sets(eight)[7] == "24-31,56-63");
  CHECK(threads(eight) == Counts(8, 4));
  CHECK(eight.workers[7].nodes == Counts{3});

  CHECK(sets(divide(big_machine(), 2, Binding::socket)) == Sets{"0-15,32-47", "16-31,48-63"});
  CHECK(sets(divide(big_machine(), 3, Binding::socket)) == Sets{"0-15,32-47", "0-15,32-47", "16-31,48-63"});
  CHECK(threads(divide(big_machine(), 3, Binding::socket)) == Counts{8, 8, 16});

  const auto caches = sets(divide(big_machine(), 8, Binding::l3));
  CHECK(caches[0] == "0-3,32-35");
  CHECK(caches[7] == "28-31,60-63");
  CHECK(eight.notices.empty());
}

TEST_CASE("bind uses only the CPUs that the process may use") {
  const auto machine = big_machine(cpus("6-8,38,40,63"));
  CHECK(sets(divide(machine, 2, Binding::cores)) == Sets{"6-7,38", "8,40,63"});
  CHECK(sets(divide(machine, 4, Binding::numa)) == Sets{"6-7,38", "6-7,38", "8,40", "63"});
}

TEST_CASE("bind with GPUs: each worker is bound to the node of its own GPU") {
  const auto machine = gpu_machine();
  CHECK(sets(divide(machine, 8, Binding::cores)) == Sets{"16-19,48-51", "20-23,52-55", "24-27,56-59", "28-31,60-63",
                                                         "0-3,32-35", "4-7,36-39", "8-11,40-43", "12-15,44-47"});
  // Workers 0 and 1 are alone at node 2, worker 2 at node 3.
  CHECK(sets(divide(machine, 3, Binding::cores)) == Sets{"16-19,48-51", "20-23,52-55", "24-31,56-63"});
  CHECK(sets(divide(machine, 3, Binding::numa)) == Sets{"16-23,48-55", "16-23,48-55", "24-31,56-63"});
  CHECK(sets(divide(machine, 1, Binding::socket)) == Sets{"16-31,48-63"});
  CHECK(divide(machine, 3, Binding::cores).workers[2].gpu->name == "2");
}

TEST_CASE("bind divides the machine evenly if there are more workers than GPUs or no usable CPU near a GPU") {
  CHECK(sets(divide(gpu_machine({0, 1}), 4, Binding::cores))[0] == "0-7,32-39");
  CHECK(sets(divide(gpu_machine(first_cpus(8), cpus("0-3")), 2, Binding::cores)) == Sets{"0-1", "2-3"});
}

TEST_CASE("numa_binding node and socket: all CPUs of the GPU's node, or of its package") {
  const auto machine = gpu_machine();
  CHECK(sets(divide(machine, 5, Binding::gpu_node)) ==
        Sets{"16-23,48-55", "16-23,48-55", "24-31,56-63", "24-31,56-63", "0-7,32-39"});
  CHECK(sets(divide(machine, 5, Binding::gpu_socket)) ==
        Sets{"16-31,48-63", "16-31,48-63", "16-31,48-63", "16-31,48-63", "0-15,32-47"});
  CHECK(sets(divide(gpu_machine({6, 0}), 2, Binding::gpu_node)) == Sets{"8-15,40-47", "16-23,48-55"});
  CHECK(sets(divide(gpu_machine(first_cpus(8), cpus("5-17")), 1, Binding::gpu_node)) == Sets{"16-17"});
}

TEST_CASE("numa_binding exclusive: the node's cores are divided among all its visible GPUs") {
  CHECK(sets(divide(gpu_machine(), 1, Binding::gpu_exclusive)) == Sets{"16-19,48-51"});
  // With GPUs 4, 5 and 6, 4 and 5 are at node 0; with three cores there the first gets two.
  CHECK(sets(divide(gpu_machine({4, 5, 6}, cpus("0-2,8-15")), 3, Binding::gpu_exclusive)) == Sets{"0-1", "2", "8-15"});
  CHECK_THROWS_WITH(divide(gpu_machine({4, 5}, cpus("0,32")), 2, Binding::gpu_exclusive),
                    "--numa_binding = exclusive: NUMA node 0 has fewer cores (1) than GPUs (2)");
}

TEST_CASE(
    "numa_binding core-complex: one cache each, the one with the most CPUs first, reused when there are too few") {
  CHECK(sets(divide(gpu_machine(), 2, Binding::gpu_core_complex)) == Sets{"16-19,48-51", "20-23,52-55"});
  CHECK(sets(divide(gpu_machine({4, 5}, cpus("2-7")), 2, Binding::gpu_core_complex)) == Sets{"4-7", "2-3"});
  CHECK(sets(divide(gpu_machine({4, 5}, cpus("0-3")), 2, Binding::gpu_core_complex)) == Sets{"0-3", "0-3"});
}

TEST_CASE("numa_binding names what the machine lacks") {
  CHECK_THROWS_WITH(divide(big_machine(), 2, Binding::gpu_node),
                    "--numa_binding = node: no NVIDIA GPU is visible here; --bind works without GPUs");
  CHECK_THROWS_WITH(divide(gpu_machine({1}), 2, Binding::gpu_socket),
                    "--numa_binding = socket: more workers (2) than visible GPUs (1); each worker needs its own");
  CHECK_THROWS_WITH(
      divide(gpu_machine(first_cpus(8), cpus("0-7")), 1, Binding::gpu_core_complex),
      "--numa_binding = core-complex: GPU 0 is attached to NUMA node 2, of which no CPU may be used here");
}

TEST_CASE("numa_binding does not bind a worker whose GPU has an unknown node, and a notice says so") {
  auto machine = gpu_machine();
  machine.gpus[1].node.reset();
  const auto division = divide(machine, 3, Binding::gpu_node);
  CHECK(sets(division) == Sets{"16-23,48-55", "", "24-31,56-63"});
  CHECK(division.notices == Sets{"--numa_binding = node: the NUMA node of GPU 1 is unknown; its worker is not bound"});
}

TEST_CASE("the options --bind and --numa_binding exclude each other") {
  CHECK(parse_binding("none", "none") == Binding::none);
  CHECK(parse_binding("cores", "") == Binding::cores);
  CHECK(parse_binding("none", "core-complex") == Binding::gpu_core_complex);
  CHECK(binding_text(Binding::gpu_exclusive) == "numa_binding = exclusive");
  CHECK_THROWS_WITH(parse_binding("numa", "node"), "--bind = numa and --numa_binding = node exclude each other");
}

TEST_CASE("OMP_NUM_THREADS is set for several workers, or under a quota, unless the user has set it") {
  const FakeMachine machine;  // it has no /sys, so every CPU is a core
  const auto allowed = first_cpus(32);
  const auto place = [&](int workers, const Environment& environment = {}) {
    return place_workers({.workers = workers}, environment, allowed, machine.root());
  };
  CHECK(place(4).sets_threads);
  CHECK(place(4).workers[3].threads == 8);
  CHECK(place(4).cores == 32);
  CHECK_FALSE(place(1).sets_threads);
  CHECK_FALSE(place(4, with_threads("3")).sets_threads);
  machine.write("proc/self/cgroup", "0::/");
  machine.write("sys/fs/cgroup/cpu.max", "300000 100000");
  CHECK(place(1).sets_threads);
  CHECK(place(1).workers[0].threads == 3);
  CHECK_FALSE(place(1, with_threads("")).sets_threads);
}

TEST_CASE("every division uses all allowed cores, and parts differ by at most one core") {
  for (int cores = 1; cores <= 12; ++cores) {
    for (int workers = 1; workers <= cores; ++workers) {
      const auto division = divide(plain_machine(cores), workers, Binding::cores);
      CpuList all;
      std::size_t least = 100;
      std::size_t most = 0;
      for (const auto& worker : division.workers) {
        all.insert(all.end(), worker.cpus.begin(), worker.cpus.end());
        least = std::min(least, worker.cpus.size());
        most = std::max(most, worker.cpus.size());
        CHECK(worker.threads == static_cast<int>(worker.cpus.size()));
      }
      INFO(cores << " cores, " << workers << " workers");
      CHECK(all == first_cpus(cores));
      CHECK(most - least <= 1);
    }
  }
}
