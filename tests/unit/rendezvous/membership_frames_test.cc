#include "rendezvous/membership/membership_frames.h"

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/membership/moved_servers.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

// The failures that the job of one node ends with if it reports this frame.
std::vector<WorkerFailure> failures_after(SessionFailure report, std::int64_t wall_clock_us) {
  Membership::Time now{1000s};
  const JobPolicy policy;
  Membership membership{policy};
  membership.join(now, {.id = "a", .host = "a"}, policy, {"10.0.0.1", "10.0.0.1"});
  membership.ready(now, "a", 0, 4000);
  NodeFrame frame = std::move(report);
  for (const auto& message : apply_frame(membership, {now, wall_clock_us}, "a", frame))
    if (const auto* ended = std::get_if<JobEnded>(&message.what)) return ended->result.failures;
  return {};
}

}  // namespace

TEST_CASE("heartbeats, acknowledgements, reports and messages among agents wait for no decision") {
  for (const NodeFrame& frame : {NodeFrame(SessionBeat{}), NodeFrame(SessionSeen{}), NodeFrame(SessionNode{}),
                                 NodeFrame(FollowRank{}), NodeFrame(SignalAnswer{})})
    CHECK_FALSE(needs_decision(frame));
  for (const NodeFrame& frame : {NodeFrame(SessionReady{}), NodeFrame(SessionFailure{}), NodeFrame(SessionLeave{}),
                                 NodeFrame(LeaveRequest{}), NodeFrame(WorkersRecoverable{})})
    CHECK(needs_decision(frame));
}

TEST_CASE("a failure keeps its age where the clocks of node and server differ") {
  const SessionFailure report{
      .generation = 0, .sent_us = 5'000'000, .failures = {{.exit_code = 3, .time_us = 4'000'000}}};
  const auto failures = failures_after(report, 90'000'000);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].time_us == 89'000'000);
}

TEST_CASE("a failure that is later than its report happened when that came") {
  const SessionFailure report{
      .generation = 0, .sent_us = 5'000'000, .failures = {{.exit_code = 3, .time_us = 6'000'000}}};
  const auto failures = failures_after(report, 90'000'000);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].time_us == 90'000'000);
}

TEST_CASE("frames that are not for the membership change nothing in it") {
  Membership membership{JobPolicy{}};
  for (NodeFrame frame : {NodeFrame(SessionSeen{}), NodeFrame(SessionJoin{}), NodeFrame(UnfollowRank{})})
    CHECK(apply_frame(membership, {Membership::Time{1000s}, 0}, "a", frame).empty());
  CHECK(membership.empty());
}

TEST_CASE("nodes are sent to a server that was elected elsewhere for as long as it announces itself") {
  MovedServers servers;
  const MovedServers::Time now{1000s};
  CHECK_FALSE(servers.address(now, "a"));
  servers.announced(now, "a", {.host = "10.0.0.2", .port = 29400});
  const auto address = servers.address(now + MovedServers::announcement_lasts - 1ms, "a");
  REQUIRE(address);
  CHECK(address->host == "10.0.0.2");
  CHECK_FALSE(servers.address(now, "b"));
  CHECK_FALSE(servers.address(now + MovedServers::announcement_lasts, "a"));
}
