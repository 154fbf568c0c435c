// Agents that use one endpoint and one run id with different rendezvous back ends: each is refused at once, and
// the error names the option to set. Without the refusal they wait for their join timeout of 600 s.
#include <future>

#include "common/error.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/process/nodes.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

struct MixedJob {
  Marker marker;
  std::uint16_t port = free_port();

  Child start(const Words& options) const {
    Words words{"--nnodes=2", "--nproc_per_node=1"};
    words.insert(words.end(), options.begin(), options.end());
    return Child(command(words, {"env"}), marker.variables());
  }
  Child start_c10d(const std::string& conf) const {
    return start({"--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + std::to_string(port), "--rdzv_conf=" + conf});
  }
  Child start_static(int node_rank) const {
    return start({"--rdzv_backend=static", "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port),
                  "--node_rank=" + std::to_string(node_rank)});
  }
  TcpStore dial() const { return {{.host = "127.0.0.1", .port = port}, soon()}; }
  static Deadline soon() { return Deadline::in(Node::default_timeout); }
};

void check_refused(Child& agent, const std::string& why) {
  const auto result = agent.wait(Node::default_timeout);
  INFO(result.out << result.err);
  CHECK(result.code == 2);
  CHECK_THAT(result.err, Catch::Contains(why));
  CHECK(result.out.empty());  // no worker has run
}

}  // namespace

TEST_CASE("a c10d agent and a static agent at one endpoint refuse each other, the static one serves it") {
  const MixedJob job;
  auto first = job.start_static(0);
  first.wait_for_err("waiting at ", Node::default_timeout);
  auto second = job.start_c10d("is_host=false");
  check_refused(second, "with --rdzv_backend=static, this node with c10d: set the same --rdzv_backend on every node");
  check_refused(first, "with --rdzv_backend=c10d, this node has static: set the same --rdzv_backend on every node");
}

TEST_CASE("a c10d agent and a static agent at one endpoint refuse each other, the c10d one serves it") {
  const MixedJob job;
  auto first = job.start_c10d("is_host=true");
  first.wait_for_err("1 of 2 nodes are here", Node::default_timeout);
  auto second = job.start_static(1);
  check_refused(second, "with --rdzv_backend=c10d, this node has static: set the same --rdzv_backend on every node");
  check_refused(first, "with --rdzv_backend=static, this node with c10d: set the same --rdzv_backend on every node");
}

// The first request of torchrun's c10d back end, as PyTorch's store client sends it.
TEST_CASE("a c10d agent and a torchrun agent with c10d refuse each other") {
  const MixedJob job;
  auto agent = job.start_c10d("is_host=true");
  agent.wait_for_err("1 of 2 nodes are here", Node::default_timeout);
  auto store = job.dial();
  CHECK_THROWS_AS(store.compare_set("torch.rendezvous.none", "", "Y2FuaW1hZGFt", MixedJob::soon()), Error);
  check_refused(agent,
                "with --rdzv_backend=c10d, whose protocol is torchrun's own: start ddprun on every node, or set "
                "--rdzv_backend=static and --node_rank on every node");
}

TEST_CASE("a c10d agent and a torchrun agent with static refuse each other") {
  const MixedJob job;
  auto agent = job.start_c10d("is_host=true");
  agent.wait_for_err("1 of 2 nodes are here", Node::default_timeout);
  auto store = job.dial();
  store.set("none/torchelastic/role_info/1", R"({"role": "default", "rank": 1, "local_world_size": 1})",
            MixedJob::soon());
  CHECK_THROWS_AS(store.get("none/torchelastic/role_info/0", MixedJob::soon()), Error);
  check_refused(agent, "with --rdzv_backend=static, this node with c10d");
}

TEST_CASE("a static agent and a torchrun agent with c10d refuse each other") {
  const MixedJob job;
  auto agent = job.start_static(0);
  agent.wait_for_err("waiting at ", Node::default_timeout);
  auto store = job.dial();
  CHECK_THROWS_AS(store.compare_set("torch.rendezvous.none", "", "Y2FuaW1hZGFt", MixedJob::soon()), Error);
  check_refused(agent, "start ddprun on every node, or set --rdzv_backend=static and --node_rank on every node");
}

TEST_CASE("a torchrun agent of another run id is served, and the job forms") {
  const MixedJob job;
  auto agent = job.start_c10d("is_host=true");
  agent.wait_for_err("1 of 2 nodes are here", Node::default_timeout);
  auto store = job.dial();
  CHECK(store.compare_set("torch.rendezvous.another", "", "Y2FuaW1hZGFt", MixedJob::soon()) == "Y2FuaW1hZGFt");
  auto second = job.start_c10d("is_host=false");
  CHECK(agent.wait(Node::default_timeout).code == 0);
  CHECK(second.wait(Node::default_timeout).code == 0);
}
