#include "tests/process/launch.h"
#include "tests/support/catch.h"

// Jobs of one node on a host whose loopback interface is unusual: a new network namespace.
using namespace ddprun::testing;

namespace {

// Runs a shell's commands and then ddprun; the namespace's loopback interface is down at first.
Child::Result run_with_network(const std::string& commands, const Words& arguments) {
  if (run_child({"/usr/bin/unshare", "--net", "/bin/true"}).code != 0)
    SKIP("this machine does not permit network namespaces");
  Words words{"/usr/bin/unshare", "--net", "/bin/sh", "-c", commands + " exec \"$@\"", "sh", DDPRUN_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_child(words);
}

}  // namespace

TEST_CASE("a job of one node without a loopback interface is refused at once") {
  const std::string commands = GENERATE("", "ip link set lo up; ip link set lo down;");
  CAPTURE(commands);
  const auto result = run_with_network(commands, {"--standalone", VICTIM_PROGRAM, "out=ran"});
  CHECK(result.code == 1);
  CHECK(result.out.empty());
  CHECK(result.err ==
        "[ddprun] error: this host has no loopback address, over which the processes of a job reach each other: is the "
        "interface lo up? (ip link set lo up)\n");
}

TEST_CASE("a job of one node runs where the loopback interface has only ::1") {
  const std::string only_v6 = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo;";
  const auto result =
      run_with_network(only_v6, {"--standalone", "--nproc_per_node=2", VICTIM_PROGRAM, "if-rank=1", "env"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.out.find("MASTER_ADDR=::1\n") != std::string::npos);
}
