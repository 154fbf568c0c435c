#include "rendezvous/membership/session_protocol.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

NodeFrame example_join() {
  return SessionJoin{.node = {.id = "b-1",
                              .host = "b",
                              .address = "10.0.0.2",
                              .nproc = 4,
                              .node_rank = 1,
                              .command = {"train.cfg", "--optim.lr=0.1"},
                              .former = FormerRound{7, 1, 2}},
                     .policy = {.run_id = "none",
                                .program = "train.cfg",
                                .min_nodes = 2,
                                .max_nodes = 8,
                                .agent_store = false,
                                .mpi = true,
                                .max_restarts = 3,
                                .spares = 2}};
}

RoundProposed example_round() {
  Round round{.generation = 7, .restarts_used = 2, .self = 1};
  round.members = {{.node_id = "a", .host = "ha", .address = "10.0.0.1", .nproc = 2},
                   {.node_id = "b", .host = "hb", .address = "10.0.0.2", .nproc = 3}};
  return {.round = round, .reason = "node hb joined"};
}

WorkerFailure example_failure() {
  return {.rank = 5,
          .local_rank = 1,
          .group_rank = 1,
          .host = "hb",
          .pid = 4711,
          .signal_number = 9,
          .time_us = 99,
          .message = "m",
          .last_lines = "l\n",
          .error_file = "/tmp/e",
          .cause = "out of memory",
          .label = "tensor 1",
          .consequence = true,
          .usage_error = true};
}

RoundProposed example_round_of_two_commands() {
  RoundProposed proposed = example_round();
  proposed.round.commands = {.first = {"a.py"}, .other = 1, .others = {"a.py", "--x"}, .count = 1};
  return proposed;
}

TrainingReport example_training() {
  return {.step = 12,
          .total_steps = 100,
          .epoch = 2,
          .loss = 0.25,
          .samples_per_s = 1e6,
          .seconds_left = std::numeric_limits<double>::quiet_NaN(),
          .lateness = 0.003,
          .step_seconds = 0.5,
          .data = 0.125,
          .compute = 0.625,
          .communication = 0.25};
}

NodeUsage example_usage() {
  return {.processors = 8,
          .busy = 2.5,
          .memory = 64,
          .memory_used = 32,
          .received = 1e6,
          .sent = 2e6,
          .shared_memory = 16,
          .shared_memory_used = 4};
}

std::vector<RelayMessage> relayed_messages() {
  return {FollowRank{.number = 1, .rank = 3, .again = true},
          UnfollowRank{2},
          RankOutput{.number = 3, .kind = RankOutput::Kind::err, .content = std::string("a\0b", 3)},
          OutputTaken{.number = 4, .bytes = 77},
          SignalRank{.number = 5, .rank = 2, .signal = {10, "ddprun attach (root on host b)"}},
          SignalAnswer{.number = 6, .problem = "its worker does not run"}};
}

template <class Frame>
std::vector<Frame> with_relayed(std::vector<Frame> frames) {
  for (const auto& message : relayed_messages())
    frames.push_back(std::visit([](const auto& one) { return Frame(one); }, message));
  return frames;
}

std::vector<NodeFrame> own_node_frames() {
  return {example_join(),
          SessionJoin{.node = {.id = "new"}},
          SessionJoin{.node = {.id = "b-1", .former = FormerRound{7, 1, 2, 3, "a-1"}}},
          WorkersRecoverable{7, true},
          SessionBeat{},
          SessionSeen{4711, {2, 3}},
          VoteAsked{"job", {.candidate = "b-1", .term = 3, .newest = {2, 7}, .trial = true}},
          ServerElected{"job", {"b-1", 3, {2, 7}}, true, 4711},
          SessionReady{3, 29501},
          SessionSuccess{3},
          SessionFailure{3, 123, Survivors::stopped, {example_failure(), example_failure()}},
          SessionFailure{3, 123, Survivors::run_or_end, {example_failure()}},
          SessionRecovery{3, "rank 1 has not announced that it can recover"},
          SessionLeave{"SIGTERM"},
          LeaveRequest{"--chaos"},
          SessionPreempted{3},
          SessionNode{3,
                      {.workers = {{.local_rank = 1, .pid = 4711},
                                   {.local_rank = 2, .pid = 4712, .state = WorkerReport::State::ended, .exit_code = 7},
                                   {.local_rank = 3, .pid = 4713, .training = example_training()}},
                       .replaced = 2,
                       .usage = example_usage(),
                       .wants_standby = true,
                       .stands_by = false,
                       .got_state = {"1.3"}}},
          StatusRequest{"job"},
          StopRequest{"job", "root on host b"}};
}

std::vector<NodeFrame> node_frames() {
  return with_relayed(own_node_frames());
}

RoundChanged example_change() {
  RoundChanged change{.round = example_round().round, .newcomers = {1}, .in_order = false, .reason = "node b joined"};
  change.round.master_addr = "10.0.0.1";
  change.round.master_port = 4000;
  change.round.group_generation = 3;
  for (auto& member : change.round.members) member.workers.assign(static_cast<std::size_t>(member.nproc), "1.2");
  return change;
}

std::vector<ServerFrame> own_server_frames() {
  return {ServerBeat{4711},
          SessionServer{{"a-1", 2, {1, 4}}, true, 4711},
          ElectorateConfirmed{{2, 3}},
          ServerMoved{{"10.0.0.2", 4711}},
          VoteReply{.term = 3, .trial = true, .granted = true, .voted = 2, .server = {}},
          VoteReply{.term = 3, .voted = 3, .server = ServerName{"a-1", 2, {1, 4}}},
          JoinRefused{"no"},
          NodeDropped{"silent"},
          NodeDropped{"rejoins too often", false},
          SessionShutdown{"stopped by SIGTERM"},
          RendezvousWaiting{"1 of 2"},
          example_round(),
          example_round_of_two_commands(),
          SessionStarted{7, "10.0.0.1", 4000},
          RequestAnswer{"{}"},
          WorkersRecoverable{7, true},
          RoundResumed{.generation = 7, .electorate = {.version = {2, 3}, .nodes = {"a", "b"}}, .confirmed = {2, 2}},
          StandbyAsked{7, 16},
          RecoveryAsked{7},
          WorkersReplaced{7, 2, {example_failure()}, 3},
          ReplacementRefused{7},
          LeaveAnswered{"the job of --nnodes=2:4 has 2 nodes"},
          LeaveAnswered{.refusal = {}, .round_goes_on = true},
          example_change(),
          JobEnded{{.exit_code = 137, .reason = "rank 5 failed", .failures = {example_failure()}}}};
}

std::vector<ServerFrame> server_frames() {
  return with_relayed(own_server_frames());
}

}  // namespace

TEST_CASE("every frame survives decoding and encoding") {
  for (const auto& frame : node_frames()) CHECK(encode(decode_node_frame(encode(frame))) == encode(frame));
  for (const auto& frame : server_frames()) CHECK(encode(decode_server_frame(encode(frame))) == encode(frame));
}

TEST_CASE("every field of a join survives encoding") {
  const auto join = std::get<SessionJoin>(decode_node_frame(encode(example_join())));
  CHECK(join.node.id == "b-1");
  CHECK(join.node.address == "10.0.0.2");
  CHECK(join.node.nproc == 4);
  CHECK(join.node.node_rank == 1);
  CHECK(join.node.command == std::vector<std::string>{"train.cfg", "--optim.lr=0.1"});
  REQUIRE(join.node.former);
  CHECK(join.node.former->generation == 7);
  CHECK(join.node.former->group_rank == 1);
  CHECK(join.node.former->restarts_used == 2);
  CHECK(join.policy.program == "train.cfg");
  CHECK(join.policy.max_nodes == 8);
  CHECK(join.policy.max_restarts == 3);
  CHECK(join.policy.last_call == 30s);
}

TEST_CASE("every field of a round that a node has kept survives encoding, and its group rank is one of its nodes") {
  const auto encoded = [](const FormerRound& former) {
    return encode(NodeFrame(SessionJoin{.node = {.id = "b-1", .former = former}}));
  };
  const auto join =
      std::get<SessionJoin>(decode_node_frame(encoded({7, 2, 2, 3, "a-1", "10.0.0.1", 4711, 5, {"2.3"}, 4712, true})));
  REQUIRE(join.node.former);
  CHECK(join.node.former->nodes == 3);
  CHECK(join.node.former->first == "a-1");
  CHECK(join.node.former->master_addr == "10.0.0.1");
  CHECK(join.node.former->master_port == 4711);
  CHECK(join.node.former->group_generation == 5);
  CHECK(join.node.former->workers == std::vector<std::string>{"2.3"});
  CHECK(join.node.former->store_port == 4712);
  CHECK(join.node.former->done);
  CHECK_THROWS_AS(decode_node_frame(encoded({7, 3, 2, 3, "a-1", "10.0.0.1", 4711})), Error);
}

TEST_CASE("a change of a round keeps how its nodes went") {
  auto change = example_change();
  for (const bool in_order : {false, true}) {
    change.in_order = in_order;
    CHECK(std::get<RoundChanged>(decode_server_frame(encode(ServerFrame(change)))).in_order == in_order);
  }
}

TEST_CASE("the names of a round's workers survive encoding") {
  const auto change = std::get<RoundChanged>(decode_server_frame(encode(ServerFrame(example_change()))));
  for (const auto& member : change.round.members)
    CHECK(member.workers == std::vector<std::string>(static_cast<std::size_t>(member.nproc), "1.2"));
}

TEST_CASE("every field of a worker's training survives encoding") {
  const SessionNode frame{3, {.workers = {{.local_rank = 3, .pid = 4713, .training = example_training()}}}};
  const auto node = std::get<SessionNode>(decode_node_frame(encode(NodeFrame(frame))));
  REQUIRE(node.report.workers.at(0).training);
  const auto& training = *node.report.workers[0].training;
  CHECK(training.step == 12);
  CHECK(training.total_steps == 100);
  CHECK(training.epoch == 2);
  CHECK(training.loss == 0.25);
  CHECK(training.samples_per_s == 1e6);
  CHECK(std::isnan(training.seconds_left));
  CHECK(training.lateness == 0.003);
  CHECK(training.step_seconds == 0.5);
  CHECK(training.data == 0.125);
  CHECK(training.compute == 0.625);
  CHECK(training.communication == 0.25);
}

TEST_CASE("every field of what a node tells of its machine survives encoding") {
  const SessionNode frame{3,
                          {.workers = {},
                           .replaced = 2,
                           .usage = example_usage(),
                           .wants_standby = false,
                           .stands_by = true,
                           .got_state = {"2.1", "3.1"}}};
  const auto node = std::get<SessionNode>(decode_node_frame(encode(NodeFrame(frame))));
  CHECK(node.report.replaced == 2);
  REQUIRE(node.report.usage);
  CHECK(node.report.usage->processors == 8);
  CHECK(node.report.usage->busy == 2.5);
  CHECK(node.report.usage->memory == 64);
  CHECK(node.report.usage->memory_used == 32);
  CHECK(node.report.usage->received == 1e6);
  CHECK(node.report.usage->sent == 2e6);
  CHECK(node.report.usage->shared_memory == 16);
  CHECK(node.report.usage->shared_memory_used == 4);
  CHECK(node.report.wants_standby == false);
  CHECK(node.report.stands_by == true);
  CHECK(node.report.got_state == std::vector<std::string>{"2.1", "3.1"});
}

TEST_CASE("every field of a failure and a job result survives encoding") {
  const auto ended = std::get<JobEnded>(decode_server_frame(encode(own_server_frames().back())));
  CHECK(ended.result.exit_code == 137);
  CHECK_FALSE(ended.result.success);
  CHECK(ended.result.reason == "rank 5 failed");
  REQUIRE(ended.result.failures.size() == 1);
  const WorkerFailure& failure = ended.result.failures[0];
  CHECK(failure.rank == 5);
  CHECK(failure.pid == 4711);
  CHECK(failure.signal_number == 9);
  CHECK(failure.time_us == 99);
  CHECK(failure.last_lines == "l\n");
  CHECK(failure.error_file == "/tmp/e");
  CHECK(failure.cause == "out of memory");
  CHECK(failure.label == "tensor 1");
  CHECK(failure.consequence);
  CHECK(failure.usage_error);
}

TEST_CASE("every field of a message among agents survives encoding") {
  const auto decoded = [](const auto& message) {
    return std::get<std::decay_t<decltype(message)>>(decode_node_frame(encode(NodeFrame(message))));
  };
  const auto follow = decoded(FollowRank{.number = 1, .rank = 3, .again = true});
  CHECK(follow.number == 1);
  CHECK(follow.rank == 3);
  CHECK(follow.again);
  const auto output = decoded(RankOutput{.number = 3, .kind = RankOutput::Kind::notice, .content = "n"});
  CHECK(output.number == 3);
  CHECK(output.kind == RankOutput::Kind::notice);
  CHECK(output.content == "n");
  const auto taken = decoded(OutputTaken{.number = 4, .bytes = 77});
  CHECK(taken.number == 4);
  CHECK(taken.bytes == 77);
  const auto signal = decoded(SignalRank{.number = 5, .rank = 2, .signal = {10, "root", "it is frozen"}});
  CHECK(signal.rank == 2);
  CHECK(signal.signal.number == 10);
  CHECK(signal.signal.who == "root");
  CHECK(signal.signal.why == "it is frozen");
  CHECK(decoded(SignalAnswer{.number = 6, .problem = "p"}).problem == "p");
}

TEST_CASE("a piece of output and a signal beyond their limits are refused") {
  CHECK_THROWS_AS(decode_node_frame(encode(NodeFrame(SignalRank{.number = 1, .rank = 0, .signal = {0, ""}}))), Error);
  CHECK_THROWS_AS(decode_node_frame(encode(NodeFrame(SignalRank{.number = 1, .rank = 0, .signal = {65, ""}}))), Error);
  auto bytes = encode(NodeFrame(RankOutput{.number = 1, .content = std::string(RelayLimits::piece, 'x')}));
  CHECK(std::get<RankOutput>(decode_node_frame(bytes)).content.size() == RelayLimits::piece);
  bytes[10] = 1;  // the lowest byte of the length
  CHECK_THROWS_WITH(decode_node_frame(bytes + 'x'), Catch::Contains("output is 16385"));
}

TEST_CASE("ranks of a round follow from the order of its members") {
  std::string bytes = encode(ServerFrame{example_round()});
  set_round_self(bytes, 0);
  const auto proposed = std::get<RoundProposed>(decode_server_frame(bytes));
  CHECK(proposed.reason == "node hb joined");
  CHECK(proposed.round.self == 0);
  CHECK(proposed.round.generation == 7);
  CHECK(proposed.round.restarts_used == 2);
  CHECK(proposed.round.world_size == 5);
  CHECK(proposed.round.members[1].group_rank == 1);
  CHECK(proposed.round.members[1].first_rank == 2);
}

TEST_CASE("a round says how the commands of its nodes differ") {
  const std::string bytes = encode(ServerFrame{example_round_of_two_commands()});
  const auto commands = std::get<RoundProposed>(decode_server_frame(bytes)).round.commands;
  REQUIRE(commands);
  CHECK(commands->first == std::vector<std::string>{"a.py"});
  CHECK(commands->other == 1);
  CHECK(commands->others == std::vector<std::string>{"a.py", "--x"});
  CHECK(commands->count == 1);
}

TEST_CASE("the example frame of SESSIONS.md is encoded as shown") {
  const std::string bytes = encode(NodeFrame{SessionReady{.generation = 2, .worker_store_port = 29501}});
  CHECK(bytes == std::string("\x02\x02\x00\x00\x00\x00\x00\x00\x00\x3d\x73", 11));
}

TEST_CASE("a truncated or too long frame is refused") {
  for (const auto& frame : node_frames()) {
    const std::string bytes = encode(frame);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      REQUIRE_THROWS_AS(decode_node_frame(bytes.substr(0, size)), Error);
    REQUIRE_THROWS_AS(decode_node_frame(bytes + 'x'), Error);
  }
  for (const auto& frame : server_frames()) {
    const std::string bytes = encode(frame);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      REQUIRE_THROWS_AS(decode_server_frame(bytes.substr(0, size)), Error);
    REQUIRE_THROWS_AS(decode_server_frame(bytes + 'x'), Error);
  }
}

TEST_CASE("values out of range are refused by name") {
  const auto refused = [](JobPolicy policy, NodeInfo node) {
    return encode(NodeFrame{SessionJoin{std::move(node), std::move(policy)}});
  };
  const NodeInfo node{.id = "a"};
  CHECK_THROWS_WITH(decode_node_frame(refused({.min_nodes = 3, .max_nodes = 2}, node)), Catch::Contains("max nodes"));
  CHECK_THROWS_WITH(decode_node_frame(refused({.min_nodes = 0}, node)), Catch::Contains("min nodes"));
  CHECK_THROWS_WITH(decode_node_frame(refused({.keep_alive_interval = 0ms}, node)), Catch::Contains("keep-alive"));
  CHECK_THROWS_WITH(decode_node_frame(refused({}, {.id = ""})), Catch::Contains("id is empty"));
  CHECK_THROWS_WITH(decode_node_frame(refused({}, {.id = "a", .nproc = 0})), Catch::Contains("nproc"));
  CHECK_THROWS_WITH(decode_node_frame(refused({.min_nodes = 1, .max_nodes = 2, .fixed_ranks = true}, node)),
                    Catch::Contains("fixed ranks"));
  CHECK_THROWS_WITH(decode_node_frame(std::string(1, '\x77')), Catch::Contains("0x77"));
  CHECK_THROWS_WITH(decode_server_frame(encode(NodeFrame{SessionSuccess{1}})), Catch::Contains("0x03"));
}

TEST_CASE("the error for another protocol version names both versions") {
  std::string bytes = encode(example_join());
  constexpr int other = session_protocol_version + 1;
  bytes[1] = static_cast<char>(other);
  CHECK_THROWS_WITH(decode_node_frame(bytes), Catch::Contains(fmt::format("version {}", other)));
}

TEST_CASE("texts beyond the limit are cut, and the largest report fits a frame") {
  WorkerFailure failure = example_failure();
  failure.message = failure.last_lines = failure.error_file = std::string(40'000, 'x');
  const std::string bytes =
      encode(NodeFrame{SessionFailure{1, 1, Survivors::run, std::vector<WorkerFailure>(200, failure)}});
  CHECK(bytes.size() < (8u << 20));
  const auto report = std::get<SessionFailure>(decode_node_frame(bytes));
  CHECK(report.failures.size() == SessionLimits::failures);
  CHECK(report.failures[0].last_lines.size() == SessionLimits::text);
}
