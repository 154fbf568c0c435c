#include "rendezvous/membership/server_liveness.h"

#include <chrono>

#include "rendezvous/job_policy.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;
using Silence = ServerLiveness::Silence;

namespace {

// Heartbeats each second, and five of them may be missed: a server may have lost its support after 2 s of silence, less
// 0.2 s in which it is probed.
JobPolicy policy() {
  return {.keep_alive_interval = 1s, .keep_alive_max_attempt = 5};
}

// A session that begins at `start`.
struct NodeSession {
  ServerLiveness::Time start{1000s};
  ServerLiveness liveness{policy()};

  NodeSession() {
    liveness.joining(start);
    liveness.began(start);
  }
  // Asks each half second until then.
  bool lost_at(ServerLiveness::Duration age) {
    bool lost = false;
    for (ServerLiveness::Duration at = asked; at <= age; at += 500ms) lost = liveness.is_lost(start + at);
    asked = age;
    return lost;
  }
  ServerLiveness::Duration asked{};
};

}  // namespace

TEST_CASE("a server counts as lost once nothing has come for the attempts of heartbeats") {
  NodeSession session;
  CHECK_FALSE(session.lost_at(4500ms));
  CHECK(session.liveness.next_beat() == 500ms);
  CHECK(session.lost_at(5s));
}

TEST_CASE("any message of the server counts as a sign of it") {
  NodeSession session;
  CHECK_FALSE(session.lost_at(4s));
  session.liveness.heard(session.start + 4s);
  CHECK_FALSE(session.lost_at(8500ms));
  CHECK(session.lost_at(9s));
}

TEST_CASE("the time for which this process was stopped is no silence of the server") {
  NodeSession session;
  CHECK_FALSE(session.lost_at(1s));
  CHECK_FALSE(session.liveness.is_lost(session.start + 60s));
}

TEST_CASE("a server knew this node when the last message was sent that it has answered") {
  NodeSession session;
  CHECK(session.liveness.known_at() == session.start);
  session.liveness.beat_sent(session.start + 1s);
  session.liveness.beat_sent(session.start + 2s);
  session.liveness.answered();
  CHECK(session.liveness.known_at() == session.start + 1s);
  session.liveness.answered();
  session.liveness.answered();
  CHECK(session.liveness.known_at() == session.start + 2s);
}

TEST_CASE("a silent server is probed, and reported once if it does not answer") {
  NodeSession session;
  auto& liveness = session.liveness;
  CHECK(liveness.first_silence_check() == 1800ms);
  auto check = liveness.check_silence(session.start + 1800ms, true, true);
  CHECK(check.action == Silence::probe);
  CHECK(check.again == 200ms);
  check = liveness.check_silence(session.start + 2s, true, true);
  CHECK(check.action == Silence::report);
  CHECK(liveness.check_silence(session.start + 2100ms, true, true).action == Silence::none);
  CHECK(liveness.heard(session.start + 2200ms));
  CHECK_FALSE(liveness.heard(session.start + 2300ms));
}

TEST_CASE("a server that answers the probe is not reported, and probed again in its next silence") {
  NodeSession session;
  auto& liveness = session.liveness;
  CHECK(liveness.check_silence(session.start + 1800ms, true, true).action == Silence::probe);
  CHECK_FALSE(liveness.heard(session.start + 1900ms));
  const auto check = liveness.check_silence(session.start + 2s, true, true);
  CHECK(check.action == Silence::none);
  CHECK(check.again == 1700ms);
  CHECK(liveness.check_silence(session.start + 3700ms, true, true).action == Silence::probe);
}

TEST_CASE("while no workers wait, a server is silent only an interval before it counts as lost") {
  NodeSession session;
  auto& liveness = session.liveness;
  CHECK(liveness.check_silence(session.start + 3700ms, true, false).action == Silence::none);
  CHECK(liveness.check_silence(session.start + 3800ms, true, false).action == Silence::probe);
}

TEST_CASE("the silence of a server that none can succeed is nobody's concern") {
  NodeSession session;
  CHECK(session.liveness.check_silence(session.start + 60s, false, true).action == Silence::none);
}
