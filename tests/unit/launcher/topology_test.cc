#include "launcher/placement/topology.h"

#include "launcher/placement/affinity.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/fake_machine.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("lists of CPUs are written as the kernel writes them") {
  CHECK(parse_cpu_list("0-2,5,7-8\n") == CpuList{0, 1, 2, 5, 7, 8});
  CHECK(parse_cpu_list("") == CpuList{});
  CHECK(parse_cpu_list("3,1,1-2") == CpuList{1, 2, 3});
  for (const char* bad : {"a", "1-", "-1", "2-1", "1,", ",1", "1;2", "0-99999999", "1 2"}) {
    INFO(bad);
    CHECK_FALSE(parse_cpu_list(bad));
  }
  CHECK(format_cpu_list({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  CHECK(format_cpu_list({}).empty());
}

TEST_CASE("two sockets of two nodes: cores with both threads, sorted by package, node and cache") {
  const FakeMachine machine;
  two_socket_amd(machine);
  const auto cores = read_cores(first_cpus(64), machine.root());
  REQUIRE(cores.size() == 32);
  CHECK(cores[0].cpus == CpuList{0, 32});
  CHECK(cores[31].cpus == CpuList{31, 63});
  for (std::size_t i = 0; i < cores.size(); ++i) {
    INFO(i);
    CHECK(cores[i].package == static_cast<int>(i) / 16);
    CHECK(cores[i].node == static_cast<int>(i) / 8);
    CHECK(cores[i].cache == static_cast<int>(i) / 4 * 4);
  }
  CHECK(count_cores(first_cpus(64), machine.root()) == 32);
}

TEST_CASE("a laptop: one node, some cores with two threads and some with one") {
  const FakeMachine machine;
  for (int cpu = 0; cpu < 4; ++cpu) machine.cpu(cpu, cpu < 2 ? "0-1" : "2-3", 0, "0-7");
  for (int cpu = 4; cpu < 8; ++cpu) machine.cpu(cpu, std::to_string(cpu), 0, "0-7");
  machine.nodes({"0-7"});
  const auto cores = read_cores(first_cpus(8), machine.root());
  REQUIRE(cores.size() == 6);
  CHECK(cores[1].cpus == CpuList{2, 3});
  CHECK(cores[2].cpus == CpuList{4});
  CHECK(count_cores(first_cpus(8), machine.root()) == 6);
}

TEST_CASE("CPUs that are offline are left out") {
  const FakeMachine machine;
  for (const int cpu : {0, 1, 3}) machine.cpu(cpu, cpu == 3 ? "3" : "0-1", 0, "0-1,3");
  machine.nodes({"0-1,3"});
  const auto cores = read_cores({0, 1, 3}, machine.root());
  REQUIRE(cores.size() == 2);
  CHECK(cores[0].cpus == CpuList{0, 1});
  CHECK(cores[1].cpus == CpuList{3});
  CHECK(count_cores({0, 1, 3}, machine.root()) == 2);
}

TEST_CASE("a container with part of the CPUs sees part of each core") {
  const FakeMachine machine;
  two_socket_amd(machine);
  const auto cores = read_cores({7, 39, 40, 63}, machine.root());
  REQUIRE(cores.size() == 3);
  CHECK(cores[0].cpus == CpuList{7, 39});
  CHECK(cores[1].cpus == CpuList{40});
  CHECK(cores[1].node == 1);
  CHECK(cores[2].node == 3);
  CHECK(count_cores({7, 39, 40, 63}, machine.root()) == 3);
}

TEST_CASE("without /sys every CPU is a core of one node") {
  const FakeMachine machine;
  const auto cores = read_cores({1, 2, 6}, machine.root());
  REQUIRE(cores.size() == 3);
  for (const auto& core : cores) CHECK(core.cpus.size() + static_cast<std::size_t>(core.node + core.package) == 1);
  CHECK(cores[0].cache == cores[2].cache);
  CHECK(count_cores({1, 2, 6}, machine.root()) == 3);
}

TEST_CASE("count_cores reads a single file if the machine has no hardware threads") {
  const FakeMachine machine;
  machine.write("sys/devices/system/cpu/smt/active", "0");
  CHECK(count_cores({0, 1, 2}, machine.root()) == 3);
}

TEST_CASE("a quota of cgroup version 2 is the least of the group and those above it") {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/jobs/one");
  CHECK_FALSE(cpu_quota(machine.root()));
  machine.write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000");
  CHECK_FALSE(cpu_quota(machine.root()));
  machine.write("sys/fs/cgroup/jobs/cpu.max", "250000 100000");
  CHECK(cpu_quota(machine.root()) == 2.5);
  machine.write("sys/fs/cgroup/jobs/one/cpu.max", "100000 50000");
  CHECK(cpu_quota(machine.root()) == 2.0);
}

TEST_CASE("a container that sees the host's path reads its quota from the root group") {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/kubepods/pod1/container2");
  machine.write("sys/fs/cgroup/cpu.max", "50000 100000");
  CHECK(cpu_quota(machine.root()) == 0.5);
}

TEST_CASE("a quota of cgroup version 1 is found with the cpu controller") {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/x\n0::/");
  machine.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1");
  machine.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  CHECK_FALSE(cpu_quota(machine.root()));
  machine.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000");
  CHECK(cpu_quota(machine.root()) == 3.0);
}

TEST_CASE("a CPU mask binds the thread, and a mask without usable CPUs is an error") {
  const auto before = current_affinity();
  REQUIRE_FALSE(before.empty());
  const CpuList last{before.back()};
  CHECK(CpuMask(last).apply() == 0);
  CHECK(current_affinity() == last);
  CHECK(CpuMask(before).apply() == 0);
  CHECK(current_affinity() == before);
  CHECK(CpuMask({60000}).apply() == EINVAL);
}
