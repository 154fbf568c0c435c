#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/deadline.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/rendezvous.h"

// Real store servers and agents' sessions over loopback, all in one thread: a loop that is not polled is a frozen
// process.
namespace ddprun::testing {

using namespace std::chrono_literals;

inline JobPolicy quick(int min_nodes, int max_nodes, int max_restarts = 0) {
  return {.min_nodes = min_nodes,
          .max_nodes = max_nodes,
          .max_restarts = max_restarts,
          .last_call = 50ms,
          .join_timeout = 20s,
          .keep_alive_interval = 40ms,
          .keep_alive_max_attempt = 5};
}

// The event loops of a test; each represents a process that can be frozen.
class Loops {
 public:
  boost::asio::io_context& make() { return *loops_.emplace_back(std::make_unique<boost::asio::io_context>()); }
  void freeze(boost::asio::io_context& loop) { frozen_ = &loop; }
  void thaw() { frozen_ = nullptr; }

  template <class Condition>
  bool run_until(Condition condition, std::chrono::milliseconds limit = 20s) {
    const auto deadline = Deadline::in(limit);
    while (!condition()) {
      if (deadline.expired()) return false;
      for (const auto& loop : loops_) {
        if (loop.get() == frozen_) continue;
        loop->restart();
        loop->run_for(1ms);
      }
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<boost::asio::io_context>> loops_;
  boost::asio::io_context* frozen_ = nullptr;
};

// An agent that is ready at once and records the events.
class Agent {
 public:
  Agent(Rendezvous& rendezvous, std::string name, const JobPolicy& policy, std::optional<int> node_rank = {})
      : rendezvous_(rendezvous), name_(name) {
    rendezvous_.join(
        {.id = name, .host = name, .nproc = 2, .node_rank = node_rank}, policy,
        [this](RendezvousEvent event) { std::visit([this](auto& one) { record(std::move(one)); }, event); });
  }

  void ask_to_leave() { rendezvous_.ask_to_leave("a trial"); }
  void succeed() { rendezvous_.report_success(started->generation); }
  void fail(int exit_code) {
    rendezvous_.report_failure(started->generation, {{.rank = 1, .host = name_, .exit_code = exit_code, .time_us = 5}},
                               Survivors::stopped);
  }
  void lose_worker(int rank) {
    rendezvous_.report_failure(started->generation, {{.rank = rank, .host = name_, .signal_number = 9, .time_us = 5}},
                               Survivors::run);
  }
  bool runs(std::int64_t generation) const { return started && started->generation == generation; }

  std::optional<RoundProposed> proposed;
  std::optional<Round> started;
  std::optional<WorkersReplaced> replaced;
  std::optional<std::string> leave_answer;
  std::optional<JobResult> ended;
  std::optional<Error> lost;
  std::string waiting;
  std::string broken;
  std::chrono::milliseconds lease{0};
  std::optional<std::int64_t> resumed;
  bool keeps = false;  // it calls keep_round() when the contact breaks

 private:
  void record(RendezvousWaiting what) { waiting = what.text; }
  void record(RoundProposed what) {
    started.reset();
    proposed = what;
    rendezvous_.ready(what.round.generation, 4242);
  }
  void record(RoundStarted what) { started = what.round; }
  void record(RoundChanged what) { started = std::move(what.round); }
  void record(StandbyAsked) {}
  void record(RecoveryAsked what) { rendezvous_.answer_recovery(what.generation, ""); }
  void record(WorkersReplaced what) { replaced = std::move(what); }
  void record(ReplacementRefused) {}
  void record(WorkersRecoverable) {}
  void record(RoundResumed what) {
    resumed = what.generation;
    started = kept_;
  }
  void record(LeaveAnswered what) {
    leave_answer = what.refusal;
    if (what.refusal.empty()) started.reset();
  }
  void record(JobEnded what) { ended = what.result; }
  void record(ContactBroken what) {
    kept_ = std::exchange(started, std::nullopt);
    broken = what.text;
    lease = what.lease;
    if (keeps && lease > 0ms) rendezvous_.keep_round(false);
  }
  void record(ContactLost what) { lost = what.error; }

  Rendezvous& rendezvous_;
  std::string name_;
  std::optional<Round> kept_;
};

inline std::unique_ptr<HostedEndpoint> host(boost::asio::io_context& loop, std::uint16_t port = 0) {
  auto server = std::make_unique<StoreServer>(loop, StoreServerOptions{.host = "127.0.0.1", .port = port});
  return std::make_unique<HostedEndpoint>(loop, std::move(server));
}

inline SessionClientOptions to(std::uint16_t port, std::chrono::milliseconds rejoin_timeout = 0ms) {
  return {.host = "127.0.0.1", .port = port, .rejoin_timeout = rejoin_timeout};
}

}  // namespace ddprun::testing
