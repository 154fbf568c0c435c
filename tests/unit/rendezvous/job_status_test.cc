#include "rendezvous/membership/job_status.h"

#include <csignal>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_hub.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/membership/worker_failure.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

const SessionAddresses here{"10.0.0.2", "10.0.0.1"};

// A running job of two nodes and a spare.
struct RunningJob {
  JobPolicy policy{.program = "train.cfg", .min_nodes = 1, .max_nodes = 2, .max_restarts = 3};
  Membership membership{policy};
  Membership::Time now{1000s};

  RunningJob() {
    for (const char* id : {"a", "b", "spare"}) membership.join(now, {.id = id, .host = id, .nproc = 2}, policy, here);
    now += 2s;
    for (const char* id : {"a", "b"}) membership.ready(now, id, 0, 4000);
  }
};

// A hub without sockets, and the frames it sent.
struct Hub {
  struct Sender final : SessionSender {
    void send(SessionId id, std::string frame) override { sent.emplace_back(id, decode_server_frame(frame)); }
    void close(SessionId id) override { closed.push_back(id); }
    std::vector<std::pair<SessionId, ServerFrame>> sent;
    std::vector<SessionId> closed;
  };
  boost::asio::io_context loop;
  Sender sender;
  MembershipHub hub{loop, sender};

  void say(SessionId id, const NodeFrame& frame) { hub.on_frame(id, encode(frame)); }
  void join(SessionId id, const std::string& run_id) {
    hub.on_open(id, {});
    say(id, SessionJoin{{.id = run_id, .host = run_id}, {.run_id = run_id}});
  }
  // Returns the answer to a request in a session of its own.
  ServerFrame ask(SessionId id, const NodeFrame& question) {
    hub.on_open(id, {});
    say(id, question);
    for (const auto& [to, frame] : sender.sent)
      if (to == id) return frame;
    throw std::runtime_error("no answer");
  }
};

std::vector<JobStatus> jobs_in(const ServerFrame& answer) {
  return parse_job_statuses(std::get<RequestAnswer>(answer).jobs);
}

}  // namespace

TEST_CASE("a status lists members, spares and the state of workers, each with its age") {
  RunningJob job;
  job.now += 5s;
  job.membership.report(job.now, "b", 0, {.workers = {{.local_rank = 1, .pid = 4711}, {.local_rank = 0, .pid = 4710}}});
  job.now += 3s;
  job.membership.report(
      job.now, "b", 0,
      {.workers = {{.local_rank = 0, .pid = 4710, .state = WorkerReport::State::ended, .exit_code = 3}}});
  job.now += 1s;
  const auto status = job.membership.status(job.now);
  CHECK(status.phase == "running");
  CHECK(status.since == 9s);
  CHECK(status.program == "train.cfg");
  CHECK(status.max_restarts == 3);
  CHECK(status.world_size == 4);
  CHECK(status.store == "10.0.0.2:4000");
  REQUIRE(status.nodes.size() == 3);
  const auto& b = status.nodes[1];
  CHECK(b.host == "b");
  CHECK(b.state == "member");
  CHECK(b.first_rank == 2);
  CHECK(b.address == "10.0.0.2");
  CHECK(b.since == 11s);
  REQUIRE(b.workers.size() == 2);
  CHECK(b.workers[0].now.exit_code == 3);
  CHECK(b.workers[0].since == 1s);
  CHECK(b.workers[1].now.pid == 4711);
  CHECK(b.workers[1].since == 4s);
  CHECK(status.nodes[2].state == "spare");
  CHECK(status.nodes[2].group_rank == -1);
}

TEST_CASE("a status has what the workers tell of their training, which is no change of their state") {
  RunningJob job;
  job.membership.report(job.now, "b", 0, {.workers = {{.local_rank = 0, .pid = 4710}, {.local_rank = 1, .pid = 4711}}});
  job.now += 3s;
  job.membership.report(
      job.now, "b", 0,
      {.workers = {
           {.local_rank = 0, .pid = 4710, .training = TrainingReport{.step = 8, .total_steps = 10, .loss = 0.5}},
           {.local_rank = 1, .pid = 4711, .training = TrainingReport{.step = 9, .total_steps = 10}}}});
  auto status = job.membership.status(job.now);
  CHECK(status.nodes[1].workers[0].since == 3s);
  REQUIRE(training_of(status));
  CHECK(training_of(status)->step == 9);
  const auto text = to_json({status});
  CHECK(to_json(parse_job_statuses(text)) == text);
  CHECK_THAT(text, Catch::Contains(R"("training":{"step":8,"total_steps":10,"epoch":0,"loss":5E-1)"));

  using State = WorkerReport::State;
  job.membership.report(job.now, "b", 0, {.workers = {{.local_rank = 1, .pid = 4711, .state = State::stopped}}});
  status = job.membership.status(job.now);
  CHECK(status.nodes[1].workers[1].since == 0s);
  CHECK(training_of(status)->step == 9);
  job.membership.report(job.now, "b", 0, {.workers = {{.local_rank = 1, .pid = 4799}}});
  CHECK(training_of(job.membership.status(job.now))->step == 8);
}

TEST_CASE("replacements count as restarts of the job, and the newest use of a machine is kept") {
  RunningJob job;
  job.membership.report(job.now, "a", 0,
                        {.workers = {}, .replaced = 2, .usage = NodeUsage{.processors = 4, .busy = 1.5}});
  job.membership.report(job.now, "b", 0, {.workers = {}, .replaced = 1});
  job.membership.report(job.now, "a", 0, {.workers = {}, .replaced = 2});
  const auto status = job.membership.status(job.now);
  CHECK(status.restarts_used == 3);
  REQUIRE(status.nodes[0].usage);
  CHECK(status.nodes[0].usage->busy == 1.5);
  CHECK_FALSE(status.nodes[1].usage);
  const auto text = to_json({status});
  CHECK(to_json(parse_job_statuses(text)) == text);
  CHECK(parse_job_statuses(text).at(0).nodes[0].usage->processors == 4);
}

TEST_CASE("a figure that is not known has no number in JSON") {
  JobStatus job{.run_id = "x", .nodes = {{.workers = {{.now = {.training = TrainingReport{.loss = NAN}}}}}}};
  const auto text = to_json({job});
  CHECK_THAT(text, Catch::Contains(R"("loss":null)"));
  CHECK(std::isnan(training_of(parse_job_statuses(text).at(0))->loss));
}

TEST_CASE("a status leaves out workers of another generation, of a spare node, and of unknown local ranks") {
  RunningJob job;
  job.membership.report(job.now, "a", 7, {.workers = {{.local_rank = 0, .pid = 1}}});
  job.membership.report(job.now, "a", 0, {.workers = {{.local_rank = 2, .pid = 1}}});
  job.membership.report(job.now, "spare", 0, {.workers = {{.local_rank = 0, .pid = 1}}});
  for (const auto& node : job.membership.status(job.now).nodes) CHECK(node.workers.empty());
}

TEST_CASE("the status of a forming job says what it waits for") {
  const JobPolicy policy{.min_nodes = 2, .max_nodes = 4};
  Membership membership(policy);
  membership.join(Membership::Time(1s), {.id = "a", .host = "a"}, policy, here);
  const auto status = membership.status(Membership::Time(2s));
  CHECK(status.phase == "forming");
  CHECK(status.store.empty());
  CHECK_THAT(status.waiting_for, Catch::Contains("1 of 2 nodes"));
  REQUIRE(status.nodes.size() == 1);
  CHECK(status.nodes[0].state == "waiting");
}

TEST_CASE("a status survives a round trip through JSON, and invalid JSON is refused") {
  RunningJob job;
  job.membership.report(
      job.now, "a", 0,
      {.workers = {{.local_rank = 0, .pid = 9, .state = WorkerReport::State::stopped, .signal_number = 19}}});
  const auto text = to_json({job.membership.status(job.now)});
  CHECK(to_json(parse_job_statuses(text)) == text);
  CHECK_THAT(text, Catch::Contains(R"("rank":0,"local_rank":0,"pid":9,"state":"stopped","since_ms":0)"));
  for (const char* junk : {"", "{}", "[]", R"({"jobs": [1]})", R"({"jobs": [{"run_id": "x"}]})"}) {
    CAPTURE(junk);
    CHECK_THROWS_AS(parse_job_statuses(junk), Error);
  }
  CHECK_THROWS_WITH(parse_job_statuses(R"({"jobs": )"), "not a job status: incomplete JSON");
  CHECK_THROWS_WITH(parse_job_statuses(R"({"jobs": 1})"), !Catch::Contains("boost") && !Catch::Contains(".hpp"));
}

TEST_CASE("a server reports one job or all, and none if the run id is unknown") {
  Hub hub;
  hub.join(1, "x");
  hub.join(2, "y");
  CHECK(jobs_in(hub.ask(3, StatusRequest{})).size() == 2);
  const auto one = jobs_in(hub.ask(4, StatusRequest{"y"}));
  REQUIRE(one.size() == 1);
  CHECK(one[0].run_id == "y");
  CHECK(jobs_in(hub.ask(5, StatusRequest{"z"})).empty());
  CHECK(hub.sender.closed == std::vector<SessionId>{3, 4, 5});
}

TEST_CASE("a stop request ends the job it names, and the job result says who asked") {
  Hub hub;
  hub.join(1, "x");
  hub.join(2, "y");
  CHECK_THAT(std::get<JoinRefused>(hub.ask(3, StopRequest{})).text, Catch::Contains("several jobs"));
  CHECK(jobs_in(hub.ask(4, StopRequest{"y", "root on host h"})).size() == 1);
  REQUIRE(hub.sender.sent.back().first == 2);
  const auto result = std::get<JobEnded>(hub.sender.sent.back().second).result;
  CHECK(result.exit_code == 128 + SIGTERM);
  CHECK(result.reason == "stopped by root on host h");
  // The other job is still running, and the only one.
  CHECK(jobs_in(hub.ask(5, StopRequest{"", "me"})).at(0).run_id == "x");
}

TEST_CASE("an agent may stop its own job") {
  Hub hub;
  hub.join(1, "x");
  hub.join(2, "y");
  hub.say(1, StopRequest{"", "a key"});
  REQUIRE(hub.sender.sent.back().first == 1);
  CHECK(std::get<JobEnded>(hub.sender.sent.back().second).result.reason == "stopped by a key");
  CHECK(hub.hub.jobs() == 1);
}

TEST_CASE("a job whose workers were preempted ends with that exit code once all nodes have reported") {
  RunningJob job;
  CHECK(job.membership.preempted(job.now, "a", 0).empty());
  const auto messages = job.membership.success(job.now, "b", 0);
  REQUIRE(messages.size() == 1);
  const auto result = std::get<JobEnded>(messages[0].what).result;
  CHECK(result.exit_code == 75);
  CHECK_FALSE(result.success);
  CHECK_THAT(result.reason, Catch::Contains("preempted"));
}

TEST_CASE("a failure that blames a peer is not the cause, and of simultaneous failures a signal is") {
  const WorkerFailure killed{.rank = 3, .signal_number = 9, .time_us = 50};
  const WorkerFailure lost_a_peer{.rank = 0, .exit_code = 1, .time_us = 40, .consequence = true};
  const WorkerFailure left_at_once{.rank = 1, .exit_code = 1, .time_us = 50};
  const WorkerFailure left_before{.rank = 1, .exit_code = 1, .time_us = 49};
  CHECK(is_likelier_cause(killed, lost_a_peer));
  CHECK(is_likelier_cause(killed, left_at_once));
  CHECK(is_likelier_cause(left_before, killed));
  CHECK_FALSE(is_likelier_cause(killed, killed));
}

TEST_CASE("an answer that would be too long has no nodes, and none is given where that is not enough") {
  JobStatus job{.run_id = "a"};
  const auto without_nodes = to_json({job}).size();
  job.nodes.resize(100);
  const auto whole = to_json({job});
  CHECK(to_json_within({job}, whole.size()) == whole);
  const auto text = to_json_within({job}, whole.size() - 1);
  REQUIRE(text);
  CHECK(text->size() == without_nodes);
  CHECK_FALSE(to_json_within({job}, without_nodes - 1));
}
