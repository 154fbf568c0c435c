#include <csignal>
#include <string>
#include <vector>

#include "tests/multihost/hosts.h"
#include "tests/process/node_training.h"
#include "tests/support/catch.h"

// A training of three hosts, of which the first serves the rendezvous and the workers' store, and loses its network: no
// connection is closed. The workers of the others keep their processes.
using namespace ddprun::testing;

namespace {

constexpr const char* elected = "this node serves the rendezvous from now on";
constexpr const char* goes_on = "generation 0 goes on with 2 nodes and 2 workers";

// These settings give the same parameters with any number of ranks.
Words same_bits() {
  auto overrides = same_steps;
  for (const char* each : {"--train.shards=6", "--train.log_every=1", "--dist.backend=gloo"})
    overrides.emplace_back(each);
  return overrides;
}

// One agent with a worker on each of three hosts.
struct TrainingHosts {
  TrainingHosts() { job.host = hosts.net.address(0); }
  Child& start(int host) { return job.start({}, {.enter = hosts.net.enter(host)}); }

  Hosts hosts{3};
  NodeTraining job{"2:3", "60", {}, same_bits()};
};

std::string undisturbed_digest() {
  TrainingHosts undisturbed;
  std::vector<Child*> agents;
  for (int host = 0; host < 3; ++host) agents.push_back(&undisturbed.start(host));
  std::string output;
  for (auto* agent : agents) output += output_of(*agent);
  auto digest = parameters_of(output);
  REQUIRE(digest.size() == 64);
  return digest;
}

}  // namespace

TEST_CASE("the host of rendezvous and workers' store is cut off: the others train on in their processes") {
  need_hosts();
  const auto expected = undisturbed_digest();
  TrainingHosts three;
  auto& job = three.job;
  auto& a = three.start(0);
  auto& b = three.start(1);
  auto& c = three.start(2);
  for (auto* agent : {&a, &b, &c}) agent->wait_for_err(able, bound);
  job.wait_for_step(20);
  const auto before = job.workers({&b, &c});
  REQUIRE(before.size() == 2);
  three.hosts.net.link_down(0);
  for (auto* agent : {&b, &c}) agent->wait_for_err(goes_on, bound);
  job.wait_for_steps(50, &b);
  CHECK(job.workers({&b, &c}) == before);
  a.wait_for_err("it stops deciding", bound);
  a.wait_until([&] { return job.workers({&a}).empty(); }, "the end of the worker that is cut off", bound);
  const auto output = output_of(b) + output_of(c);
  a.signal(SIGTERM);
  const auto cut_off = a.wait(bound);
  CHECK(occurrences(output, elected) == 1);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(occurrences(cut_off.err, goes_on) == 0);
  CHECK(parameters_of(output) == expected);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  CHECK(job.training.marker.processes() == 0);
}
