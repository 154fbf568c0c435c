#pragma once

#include <chrono>
#include <deque>

#include "common/stall_aware_clock.h"
#include "rendezvous/job_policy.h"

namespace ddprun {

// Whether the server of a node's sessions lives, as the node sees it: when its heartbeats are due and the server counts
// as lost, when it seems to be silent, and since when it cannot count this node as lost. A state machine: messages sent
// and received and the time go in.
//
// A session is lost once no message has come for JobPolicy::heartbeat_timeout(), without the time during which this
// process was stopped. Before that the server may be reported as silent: once in a silence, after it has been probed by
// another heartbeat, since this process may not have read what has come.
//
// Ownership: a value. Threads: not thread-safe. Errors: none.
class ServerLiveness {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  explicit ServerLiveness(const JobPolicy& policy);

  // JOIN is sent; a heartbeat is. The server answers both, in their order.
  void joining(Time now) { unanswered_ = {now}; }
  void beat_sent(Time now) { unanswered_.push_back(now); }
  void answered();
  // A message of the server has come, the first of a session. heard() returns whether it was reported as silent.
  void began(Time now);
  bool heard(Time now);

  // The session is lost: call at the latest after next_beat().
  bool is_lost(Time now);
  // The time until the next heartbeat, or until the server may count as lost.
  Duration next_beat() const;

  // The answer to check_silence(): what to do about a silent server that may be replaced, and when to ask again.
  enum class Silence { none, probe, report };
  struct SilenceCheck {
    Silence action = Silence::none;
    Duration again{};
  };
  // workers_wait: workers of this node have lost their process group, which shows that the server's host may be lost.
  // Then the server counts as silent as soon as it can have lost its support.
  SilenceCheck check_silence(Time now, bool may_have_successor, bool workers_wait);
  // The time after a session has begun until check_silence().
  Duration first_silence_check() const;

  std::chrono::milliseconds silence(Time now) const;
  Time heard_at() const { return heard_at_; }
  // When the last message was sent that the server has answered: it knew this node then.
  Time known_at() const { return known_at_; }

 private:
  std::chrono::milliseconds interval_, timeout_, support_bound_, probe_bound_;
  StallAwareClock clock_;
  StallAwareClock::Duration last_heard_{};
  std::deque<Time> unanswered_;  // when JOIN and the heartbeats were sent that await their answers
  Time known_at_{};
  Time heard_at_{};
  Time probed_{};        // heard_at_ when the server was asked for a sign
  bool silent_ = false;  // it has been reported
};

}  // namespace ddprun
