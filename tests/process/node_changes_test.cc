#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "common/unique_fd.h"
#include "tests/process/node_training.h"
#include "tests/process/save_watch.h"
#include "tests/support/catch.h"

// Nodes that leave and join a training while the workers of the others keep their processes.
using namespace ddprun::testing;

namespace {

// Workers of agents with this FIFO (NodeOptions::wait_for) wait before they begin.
class WaitingWorkers {
 public:
  explicit WaitingWorkers(NodeTraining& job) : fifo_((job.training.folder / "fifo").string()) {
    job.may_wait = true;
    REQUIRE(::mkfifo(fifo_.c_str(), 0600) == 0);
    writer_ = ddprun::UniqueFd(::open(fifo_.c_str(), O_RDWR | O_CLOEXEC));
  }
  const std::string& fifo() const { return fifo_; }
  // So many of them begin.
  void begin(std::size_t workers) const {
    REQUIRE(::write(writer_.get(), std::string(workers, '\n').data(), workers) == static_cast<ssize_t>(workers));
  }

 private:
  const std::string fifo_;
  ddprun::UniqueFd writer_;
};

}  // namespace

TEST_CASE("when a node is lost, the workers of the others go on in their processes, and no sample is lost") {
  const Words backend{"--dist.backend=" + std::string(GENERATE("gloo", "shm"))};
  CAPTURE(backend);
  auto overrides = same_steps;
  overrides.insert(overrides.end(), backend.begin(), backend.end());
  NodeTraining job("1:3", "60", {"--max_restarts=0"}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(5);
  const auto before = job.workers({&a, &c});
  REQUIRE(before.size() == 2);
  b.signal(SIGKILL);
  a.wait_for_err("generation 0 goes on with 2 nodes and 2 workers, and the same workers on the nodes that stay", bound);
  job.wait_for_steps(20);
  CHECK(job.workers({&a, &c}) == before);
  const auto output = output_of(a) + output_of(c);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("where ranks have parts of the state, those that stay get a lost node's part from its neighbour's copy") {
  auto overrides = same_steps;
  const std::string zero = GENERATE("1", "3");
  for (const std::string& each : {"--parallel.zero=" + zero, std::string("--checkpoint.peers=1")})
    overrides.push_back(each);
  NodeTraining job("1:3", "60", {"--max_restarts=0"}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(40);
  const auto before = job.workers({&a, &c});
  REQUIRE(before.size() == 2);
  b.signal(SIGKILL);
  a.wait_for_err("generation 0 goes on with 2 nodes and 2 workers, and the same workers on the nodes that stay", bound);
  job.wait_for_steps(20);
  CHECK(job.workers({&a, &c}) == before);
  const auto output = output_of(a) + output_of(c);
  CHECK(occurrences(output, "from copies in the memory of neighbours (checkpoint.peers)") == 1);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

TEST_CASE("a node that joins a training gets the state from the others, whose workers keep their processes") {
  auto overrides = same_steps;
  const std::string zero = GENERATE("0", "1", "3");
  CAPTURE(zero);
  overrides.push_back("--parallel.zero=" + zero);
  NodeTraining job("1:3", "1", {}, overrides);
  auto& a = job.start();
  a.wait_for_err(able, bound);
  std::vector<const Child*> agents{&a};
  for (int nodes = 2; nodes <= 3; ++nodes) {
    CAPTURE(nodes);
    job.wait_for_step(5 * nodes);
    const auto before = job.workers(agents);
    auto& added = job.start();
    const auto size = std::to_string(nodes);
    a.wait_for_err("generation 0 goes on with " + size + " nodes and " + size + " workers", bound);
    a.wait_for_err("in generation " + std::to_string(nodes - 1) + " of their group", bound);
    CHECK(job.workers(agents) == before);
    agents.push_back(&added);
  }
  job.wait_for_steps(20);
  CHECK(job.workers().size() == 3);
  std::string output;
  for (const auto* agent : agents) output += output_of(*const_cast<Child*>(agent));
  CHECK(occurrences(output, "new round") == 0);
  CHECK(occurrences(output, "which runs, as node") == 2);
  CHECK(occurrences(output, "repeated") == 0);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

// The state has more than the 64 MiB from which on it is sent ahead.
TEST_CASE("a node that joins gets a large state while the others train, and joins without a copy of it") {
  const std::string memory = GENERATE("1024", "1", "0");  // with 1, steps wait for the gradients of earlier ones
  CAPTURE(memory);
  NodeTraining job("1:2", "1", {},
                   {"--train.batch_size=0", "--train.global_batch_size=40", "--data.samples=4000", "--model.name=mlp",
                    "--model.hidden=2400 2400", "--optim.name=adam", "--checkpoint.heal_memory=" + memory});
  auto& a = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(3);
  auto& b = job.start({"--nproc_per_node=2"});
  a.wait_for_err("generation 0 goes on with 2 nodes and 3 workers", bound);
  a.wait_for_err("in generation 1 of their group", bound);
  const auto output = output_of(a) + output_of(b);
  CHECK(occurrences(output, "those that join have the state") == (memory == "0" ? 0 : 1));
  CHECK(occurrences(output, "copied the state") == (memory == "0" ? 1 : 0));
  CHECK(recorded_steps(job.training) == first_steps(200));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

TEST_CASE("nodes that come while another one gets a large state get it as well, and all join without a copy of it") {
  NodeTraining job("1:3", "1", {},
                   {"--train.batch_size=0", "--train.global_batch_size=40", "--data.samples=4000", "--model.name=mlp",
                    "--model.hidden=2400 2400", "--optim.name=adam"});
  const WaitingWorkers waiting(job);
  auto& a = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(3);
  auto& b = job.start({}, {.wait_for = waiting.fifo()});
  a.wait_for_err("generation 0 goes on with 2 nodes and 2 workers", bound);
  auto& c = job.start({"--nproc_per_node=2"}, {.wait_for = waiting.fifo()});
  a.wait_for_err("generation 0 goes on with 3 nodes and 4 workers", bound);
  waiting.begin(3);
  a.wait_for_err("in generation 2 of their group", bound);
  const auto output = output_of(a) + output_of(b) + output_of(c);
  CHECK(occurrences(output, "those that join have the state") == 2);
  CHECK(occurrences(output, "copied the state") == 0);
  CHECK(recorded_steps(job.training) == first_steps(200));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

namespace {

// Kills a worker while a third node gets the state, and checks how the job ends. Returns whether the node had not got
// all of it: its worker is stopped until then, but may be so too late.
bool is_killed_while_state_is_sent(const std::string& lost) {
  NodeTraining job("1:3", "1", {"--max_restarts=3"},
                   {"--train.batch_size=0", "--train.global_batch_size=40", "--data.samples=2000", "--model.name=mlp",
                    "--model.hidden=2400 2400", "--optim.name=adam"});
  auto& a = job.start();
  auto& b = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(3);
  auto& c = job.start();
  a.wait_until([&] { return (a.out() + a.err()).find("get the state while the others train") != std::string::npos; },
               "the state that is sent", bound);
  const auto workers = job.workers();
  REQUIRE(workers.size() == 3);
  const pid_t receiver = workers.at(&c);
  ::kill(receiver, SIGSTOP);
  ::kill(lost == "receiver" ? receiver : workers.at(lost == "sender" ? &a : &b), SIGKILL);
  ::kill(receiver, SIGCONT);
  const auto output = output_of(a) + output_of(b) + output_of(c);
  INFO(output);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(100));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  CHECK(job.training.marker.processes() == 0);
  return occurrences(output, "those that join have the state") == 0;
}

}  // namespace

TEST_CASE("a worker is lost while a node gets a large state: the others train on, and the node joins") {
  const std::string lost = GENERATE("receiver", "sender", "other");
  CAPTURE(lost);
  constexpr int most_attempts = 10;
  bool within = false;
  for (int attempt = 0; attempt < most_attempts && !within; ++attempt) within = is_killed_while_state_is_sent(lost);
  CHECK(within);
}

TEST_CASE("nodes that come one after the other join once the workers of all of them are ready") {
  auto overrides = same_steps;
  overrides.back() = "--data.samples=32000";
  NodeTraining job("1:3", "1", {}, overrides);
  const WaitingWorkers waiting(job);
  auto& a = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(5);
  auto& b = job.start({}, {.wait_for = waiting.fifo()});
  a.wait_for_err("generation 0 goes on with 2 nodes and 2 workers", bound);
  auto& c = job.start();
  a.wait_for_err("generation 0 goes on with 3 nodes and 3 workers", bound);
  // It announces that it is ready right after it has opened this file.
  a.wait_until([&] { return std::filesystem::exists(job.ledger(2)); }, "the ledger of the third node", bound);
  job.wait_for_steps(100);
  waiting.begin(1);
  a.wait_for_err("in generation 2 of their group", bound);
  const auto output = output_of(a) + output_of(b) + output_of(c);
  CHECK(occurrences(output, "in generation 1 of their group") == 0);
  CHECK(recorded_steps(job.training) == first_steps(2 * all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

TEST_CASE("the first node leaves in order once others have got the state, also where agents read no training records") {
  auto overrides = same_steps;
  for (const std::string each : {"--checkpoint.dir=", "--checkpoint.every_steps=0"}) overrides.push_back(each);
  NodeTraining job("1:3", "1", {}, overrides);
  job.may_wait = job.hides_records = true;
  auto& a = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(5);
  auto& b = job.start();
  a.wait_for_err("in generation 1 of their group", bound);
  job.wait_for_steps(20);
  const auto before = job.workers({&b});
  a.signal(SIGTERM);
  b.wait_for_err("the same workers on the nodes that stay", bound);
  job.wait_for_steps(20, &b);
  CHECK(job.workers({&b}) == before);
  CHECK(occurrences(output_of(a, 128 + SIGTERM), "this node leaves the job and ends") == 1);
  CHECK(occurrences(output_of(b), "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
}

TEST_CASE("a checkpoint after whose step nodes join or leave is not made again") {
  auto overrides = same_steps;
  const std::string zero = GENERATE("0", "1");
  CAPTURE(zero);
  for (const std::string& each : {"--parallel.zero=" + zero, std::string("--data.samples=8000"),
                                  std::string("--checkpoint.every_steps=1"), std::string("--checkpoint.keep=1")})
    overrides.push_back(each);
  NodeTraining job("1:2", "1", {}, overrides);
  SaveWatch watch(job.training.folder / "checkpoints");
  auto& a = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(5);
  auto& b = job.start();
  a.wait_for_err("in generation 1 of their group", bound);
  watch.acts();
  job.wait_for_steps(20);
  b.signal(SIGTERM);
  a.wait_for_err("in generation 2 of their group", bound);
  output_of(b, 128 + SIGTERM);
  output_of(a);
  watch.acts();
  REQUIRE(watch.times_published().size() == 400);
  for (const auto& [step, times] : watch.times_published()) {
    CAPTURE(step);
    CHECK(times == 1);
  }
  CHECK(recorded_steps(job.training) == first_steps(400));
}

TEST_CASE("where ranks have parts of the state, nodes that leave hand theirs over, and no step is repeated") {
  const std::string zero = GENERATE("1", "3");
  const bool both = GENERATE(false, true);
  CAPTURE(zero, both);
  auto overrides = same_steps;
  for (const std::string& each :
       {"--parallel.zero=" + zero, std::string("--checkpoint.dir="), std::string("--checkpoint.every_steps=0")})
    overrides.push_back(each);
  NodeTraining job("1:3", "60", {"--max_restarts=0"}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(20);
  b.signal(SIGTERM);
  if (both) c.signal(SIGTERM);
  a.wait_for_err("goes on with " + std::string(both ? "1 node and 1 worker" : "2 nodes and 2 workers"), bound);
  job.wait_for_steps(20);
  output_of(b, 128 + SIGTERM);
  const auto output = output_of(a) + output_of(c, both ? 128 + SIGTERM : 0);
  CHECK(occurrences(output, "if a rank is lost, the run begins again at its first step") == 1);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(occurrences(output, "repeated") == 0);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}

TEST_CASE("the node of the workers' store leaves in order, also with the rendezvous server, and no step is repeated") {
  const std::string zero = GENERATE("0", "1");
  const bool for_good = GENERATE(true, false);
  const int others = GENERATE(1, 2);
  CAPTURE(zero, for_good, others);
  auto overrides = same_steps;
  for (const std::string& each :
       {"--parallel.zero=" + zero, std::string("--checkpoint.dir="), std::string("--checkpoint.every_steps=0")})
    overrides.push_back(each);
  NodeTraining job("1:" + std::to_string(1 + others), "60", {"--max_restarts=0"}, overrides);
  auto& first = job.start(for_good ? Words() : Words{"--chaos=leave:1s,join:1h;seed=1"});
  std::vector<Child*> staying;
  for (int i = 0; i < others; ++i) staying.push_back(&job.start());
  first.wait_for_err(able, bound);
  job.wait_for_step(20);
  const auto before = job.workers({staying.begin(), staying.end()});
  REQUIRE(before.size() == staying.size());
  if (for_good) first.signal(SIGTERM);
  staying[0]->wait_for_err("the same workers on the nodes that stay", bound);
  job.wait_for_steps(20, staying[0]);
  CHECK(job.workers({staying.begin(), staying.end()}) == before);
  if (for_good) output_of(first, 128 + SIGTERM);
  std::string output;
  for (auto* each : staying) output += output_of(*each);
  if (!for_good) output_of(first);
  INFO(first.err() + output);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(occurrences(output, "repeated") == 0);
  CHECK(recorded_steps(job.training) == first_steps(all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  CHECK(job.training.marker.processes() == 0);
}

namespace {

// Kills one of three nodes, and another one once the others have a group again, and checks how the job ends. Returns
// whether the state was not restored yet: the worker of the first, which has parts of it, is stopped until then, but
// may be so too late.
bool is_lost_within_restoration(const Words& overrides) {
  NodeTraining job("1:3", "60", {"--max_restarts=0"}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(20);
  const auto workers = job.workers();
  REQUIRE(workers.contains(&a));
  const auto groups = [&] { return occurrences(a.out() + a.err(), "info: back end"); };
  const int groups_before = groups();
  b.signal(SIGKILL);
  a.wait_until([&] { return groups() > groups_before; }, "another group, in which the state is restored", bound);
  ::kill(workers.at(&a), SIGSTOP);
  c.signal(SIGKILL);
  ::kill(workers.at(&a), SIGCONT);
  const auto output = output_of(a);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(160));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
  return occurrences(output, "in generation 1 of their group") == 0;
}

}  // namespace

TEST_CASE("a node that is lost while the others restore the state of a lost one is another lost node") {
  auto overrides = same_steps;
  for (const char* each : {"--data.samples=3200", "--model.name=mlp", "--model.hidden=1024 1024", "--optim.name=adam",
                           "--parallel.zero=1", "--checkpoint.peers=1"})
    overrides.emplace_back(each);
  constexpr int most_attempts = 10;
  bool within = false;
  for (int attempt = 0; attempt < most_attempts && !within; ++attempt) within = is_lost_within_restoration(overrides);
  CHECK(within);
}

TEST_CASE(
    "SIGTERM to all nodes at once, with train.preempt_signal = TERM: the state is saved, and the exit code is 75") {
  const std::string zero = GENERATE("0", "1");
  CAPTURE(zero);
  auto overrides = same_steps;
  for (const std::string& each : {std::string("--train.preempt_signal=TERM"), "--parallel.zero=" + zero,
                                  std::string("--checkpoint.every_steps=100000")})
    overrides.push_back(each);
  NodeTraining job("1:3", "60", {"--max_restarts=0"}, overrides);
  auto& a = job.start();
  auto& b = job.start();
  auto& c = job.start();
  a.wait_for_err(able, bound);
  job.wait_for_step(20);
  const auto groups_of = [](const std::string& text) { return occurrences(text, "info: back end"); };
  const int groups = groups_of(a.out() + a.err());
  REQUIRE(groups > 0);
  for (const auto* each : {&c, &b, &a}) each->signal(SIGTERM);
  const auto output = output_of(a, 75) + output_of(b, 75) + output_of(c, 75);
  INFO(output);
  CHECK(job.training.checkpoints() == 1);
  CHECK(groups_of(output) == groups);  // no other one has formed, in any round
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("nodes leave and join again and again while the worker of the first keeps its process") {
  auto overrides = same_steps;
  overrides.back() = "--data.samples=32000";
  NodeTraining job("1:3", "60", {"--max_restarts=100"}, overrides);
  auto& a = job.start();
  auto& b = job.start({"--chaos=leave:400ms,join:200ms;seed=1"});
  auto& c = job.start({"--chaos=leave:300ms,join:300ms,kill:2s;seed=2"});
  a.wait_for_err(able, bound);
  const auto before = job.workers({&a});
  for (int i = 0; i < 3; ++i) {
    a.wait_for_err("goes on with 1 node", bound);
    a.wait_for_err("goes on with 2 nodes", bound);
  }
  CHECK(job.workers({&a}) == before);
  const auto output = output_of(a);
  output_of(b);
  output_of(c);
  CHECK(occurrences(output, " left: --chaos: generation ") > 2);
  CHECK(recorded_steps(job.training) == first_steps(2 * all_steps));
  CHECK_THAT(job.verified(), Catch::Contains("each once in its epoch"));
}
