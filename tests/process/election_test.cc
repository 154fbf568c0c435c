#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/process/nodes.h"
#include "tests/support/catch.h"

// The agent that serves the rendezvous is lost, and another one is elected.
using namespace ddprun::testing;

namespace {

const std::string elected = "this node serves the rendezvous from now on";

// Agents of a job at an endpoint that only the first one may serve.
struct Job {
  explicit Job(int nodes, const Words& options, std::string settings = "store_timeout=60") : conf(std::move(settings)) {
    job.options = options;
    start_host();
    for (int i = 1; i < nodes; ++i) agents.emplace_back(new Node(job.guest(conf)));
    wait_for_round(nodes);
  }

  void start_host() { agents.emplace_back(new Node(job.host(conf))); }
  void wait_for_round(int nodes, int generation = 0) {
    for (auto& agent : agents) agent->wait_for_round(nodes, generation);
  }
  // Returns the position of the agent that was elected for a round that has begun.
  std::size_t server() const {
    const auto found = std::ranges::find_if(agents, [](const auto& agent) { return agent->has_logged(elected); });
    REQUIRE(found != agents.end());
    return static_cast<std::size_t>(found - agents.begin());
  }
  void kill(std::size_t position) {
    agents[position]->signal(SIGKILL);
    agents[position]->wait();
    agents.erase(agents.begin() + static_cast<std::ptrdiff_t>(position));
  }
  void end() {
    job.finish();
    for (auto& agent : agents) CHECK(agent->wait().code == 0);
    agents.front()->wait_until([&] { return job.marker.processes() == 0; }, "the end of every process");
  }

  std::string conf;
  Nodes job;
  std::vector<std::unique_ptr<Node>> agents;
};

}  // namespace

TEST_CASE("the serving agent of three is killed: the others elect one of them, and the job goes on") {
  Job three(3, {"--nnodes=2:3"});
  const auto generation = three.agents[1]->generation();
  three.kill(0);
  three.wait_for_round(2, generation + 1);
  CHECK(three.agents[0]->has_logged(elected) != three.agents[1]->has_logged(elected));
  three.end();
}

TEST_CASE("the serving agent is killed again and again: as long as more than two are left, one of them is elected") {
  Job five(5, {"--nnodes=1:5"});
  int generation = five.agents[1]->generation();
  five.kill(0);
  for (int left = 4; left > 2; --left) {
    five.wait_for_round(left, generation + 1);
    generation = five.agents[0]->generation();
    five.kill(five.server());
  }
  five.wait_for_round(2, generation + 1);
  five.end();
}

TEST_CASE("an agent that is started at the endpoint again joins the job at the elected server") {
  Job three(3, {"--nnodes=2:3"});
  int generation = three.agents[1]->generation();
  three.kill(0);
  three.wait_for_round(2, generation + 1);
  generation = three.agents[0]->generation();
  three.start_host();
  three.wait_for_round(3, generation + 1);
  CHECK_FALSE(three.agents[2]->has_logged(elected));
  three.end();
}

TEST_CASE("a job of a fixed number of nodes waits for a replacement of the serving agent, which finds it") {
  Job three(3, {"--nnodes=3", "--max_restarts=1"});
  three.kill(0);
  three.start_host();
  three.wait_for_round(3, 1);
  three.end();
}

TEST_CASE("the serving agent leaves by a signal: the others elect one of them") {
  Job three(3, {"--nnodes=2:3"});
  const auto generation = three.agents[1]->generation();
  three.agents[0]->signal(SIGTERM);
  CHECK(three.agents[0]->wait().code == 128 + SIGTERM);
  three.agents.erase(three.agents.begin());
  three.wait_for_round(2, generation + 1);
  three.end();
}

TEST_CASE("a server that was frozen and returns finds that another one was elected, and joins the job as a node") {
  Job three(3, {"--nnodes=2:3"});
  auto generation = three.agents[1]->generation();
  three.agents[0]->signal(SIGSTOP);
  for (auto* agent : {three.agents[1].get(), three.agents[2].get()}) agent->wait_for_round(2, generation + 1);
  generation = three.agents[1]->generation();
  three.agents[0]->signal(SIGCONT);
  three.agents[0]->wait_for_err("it stops deciding");
  three.wait_for_round(3, generation + 1);
  three.end();
}

TEST_CASE("of two nodes the one without the server stops with a line, and goes on with tie_break=survive") {
  SECTION("by default") {
    Job two(2, {"--nnodes=1:2"}, "store_timeout=1");
    two.kill(0);
    const auto result = two.agents[0]->wait();
    CHECK(result.code == 1);
    CHECK(result.err.find("did not come back within 1 s (--rdzv_conf=store_timeout)") != std::string::npos);
    CHECK_FALSE(two.agents[0]->has_logged(elected));
  }
  SECTION("tie_break=survive") {
    Job two(2, {"--nnodes=1:2"}, "store_timeout=60,tie_break=survive");
    const auto generation = two.agents[1]->generation();
    two.kill(0);
    two.wait_for_round(1, generation + 1);
    two.end();
  }
}

TEST_CASE("agents with a token elect a server over TLS") {
  TempDir folder;
  const auto file = folder / "token";
  std::ofstream(file) << std::string(64, '7') << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  Job three(3, {"--nnodes=2:3"}, "store_timeout=60,token_file=" + file.string());
  const auto generation = three.agents[1]->generation();
  three.kill(0);
  three.wait_for_round(2, generation + 1);
  three.end();
}
