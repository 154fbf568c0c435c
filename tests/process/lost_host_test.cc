#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/process/node_training.h"
#include "tests/support/catch.h"

// The nodes of a training that are lost with what they serve: the rendezvous, and the workers' store. The workers of
// the others keep their processes.
using namespace ddprun::testing;

namespace {

constexpr const char* elected = "this node serves the rendezvous from now on";
constexpr const char* goes_on = "generation 0 goes on with 2 nodes and 2 workers";
constexpr const char* other_store = "the workers' store of generation 0 is at ";

// These settings give the same parameters with any number of ranks.
Words same_bits(const std::string& backend) {
  auto overrides = same_steps;
  for (const std::string& each :
       {std::string("--train.shards=6"), std::string("--train.log_every=1"), "--dist.backend=" + backend})
    overrides.push_back(each);
  return overrides;
}

std::string undisturbed_digest(const Words& overrides) {
  NodeTraining job("3", "60", {}, overrides);
  std::vector<Child*> agents{&job.start(), &job.start(), &job.start()};
  std::string output;
  for (auto* agent : agents) output += output_of(*agent);
  auto digest = parameters_of(output);
  REQUIRE(digest.size() == 64);
  return digest;
}

// Three nodes that train: the first serves the workers' store, and the last the rendezvous.
struct TrainingNodes {
  TrainingNodes(const std::string& rendezvous, const Words& overrides) : job("2:3", rendezvous, {}, overrides) {
    server.wait_for_err(able, bound);
    job.wait_for_step(20);
    before = workers_that_stay();
    REQUIRE(before.size() == 2);
  }
  std::map<const Child*, pid_t> workers_that_stay() const { return job.workers({&server, &second}); }

  NodeTraining job;
  Child& server = job.start({}, {.node_rank = 2});
  Child& first = job.start({}, {.node_rank = 0});
  Child& second = job.start({}, {.node_rank = 1});
  std::map<const Child*, pid_t> before;
};

}  // namespace

TEST_CASE("the node that serves rendezvous and workers' store is lost: the others train on, and get the same bits") {
  const std::string backend = GENERATE("gloo", "shm");
  CAPTURE(backend);
  const auto overrides = same_bits(backend);
  const auto expected = undisturbed_digest(overrides);
  NodeTraining job("2:3", "60", {}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  b.wait_for_err(able, bound);
  c.wait_for_err(able, bound);
  job.wait_for_step(20);
  const auto before = job.workers({&b, &c});
  REQUIRE(before.size() == 2);
  NodeTraining::kill(a);
  for (auto* agent : {&b, &c}) agent->wait_for_err(goes_on, bound);
  job.wait_for_steps(50, &b);
  CHECK(job.workers({&b, &c}) == before);
  const auto output = output_of(b) + output_of(c);
  CHECK(occurrences(output, elected) == 1);
  CHECK(occurrences(output, other_store) == 2);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(parameters_of(output) == expected);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("the node of the workers' store alone is lost: the server lives, and a node that stays serves the next one") {
  const auto overrides = same_bits("gloo");
  const auto expected = undisturbed_digest(overrides);
  TrainingNodes nodes("60", overrides);
  auto& [job, server, first, second, before] = nodes;
  NodeTraining::kill(first);
  for (auto* agent : {&server, &second}) agent->wait_for_err(goes_on, bound);
  job.wait_for_steps(50);
  CHECK(nodes.workers_that_stay() == before);
  const auto output = output_of(server) + output_of(second);
  CHECK(occurrences(output, elected) == 0);
  CHECK(occurrences(output, other_store) == 2);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(parameters_of(output) == expected);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE(
    "the agent of the workers' store is frozen while its worker trains: the others go on, and it joins them again") {
  const auto overrides = same_bits("gloo");
  const auto expected = undisturbed_digest(overrides);
  TrainingNodes nodes("60,keep_alive_interval=1,keep_alive_max_attempt=2", overrides);
  auto& [job, server, first, second, before] = nodes;
  first.signal(SIGSTOP);
  for (auto* agent : {&server, &second}) agent->wait_for_err(goes_on, bound);
  first.signal(SIGCONT);
  first.wait_for_err("this node joins generation 0, which runs, as node 2 of 3", bound);
  CHECK(nodes.workers_that_stay() == before);
  const auto output = output_of(server) + output_of(second) + output_of(first);
  CHECK(occurrences(output, other_store) >= 2);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(parameters_of(output) == expected);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("a node that has come later serves the workers' store of those after it, until no first node is left") {
  auto overrides = same_bits("gloo");
  for (auto& each : overrides)
    if (each.starts_with("--data.samples=")) each = "--data.samples=48000";
  NodeTraining job("2:3", "60", {}, overrides);
  std::vector<Child*> agents{&job.start(), &job.start(), &job.start()};
  agents.back()->wait_for_err(able, bound);
  job.wait_for_step(20);
  for (int kill = 1; kill <= 4; ++kill) {
    CAPTURE(kill);
    NodeTraining::kill(*agents.front());
    agents.erase(agents.begin());
    const std::vector<const Child*> others(agents.begin(), agents.end());
    const auto before = job.workers(others);
    REQUIRE(before.size() == 2);
    job.wait_for_steps(20, agents.front());
    CHECK(job.workers(others) == before);
    agents.push_back(&job.start({}, {.may_serve = true}));
    agents.back()->wait_for_err("this node joins generation 0", bound);
    agents.front()->wait_until([&] { return job.workers({agents.back()}).size() == 1; }, "the newcomer's worker",
                               bound);
    job.wait_for_steps(50, agents.front());
  }
  std::string output;
  for (auto* agent : agents) output += output_of(*agent);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(3 * all_steps));
  CHECK(job.training.marker.processes() == 0);
}
