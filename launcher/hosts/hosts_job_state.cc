#include "launcher/hosts/hosts_job_state.h"

#include <algorithm>
#include <csignal>

#include <fmt/ranges.h>

#include "common/exit_code.h"
#include "common/host_port.h"

namespace ddprun {
namespace {

using std::chrono::seconds;

// The time from the first connection until an agent has reported that it runs.
constexpr seconds start_timeout{60};
// The time for agents to notice by themselves that another one is gone.
constexpr seconds detection_timeout{30};
// The time after the grace period for an agent to exit once its workers are gone.
constexpr seconds exit_timeout{15};
constexpr seconds close_timeout{5};

}  // namespace

HostsJobState::HostsJobState(std::vector<JobHost> hosts, HostsJobPolicy policy)
    : policy_(std::move(policy)), endpoint_(policy_.endpoint) {
  for (auto& host : hosts) hosts_.push_back({.who = std::move(host)});
}

HostsJobActions HostsJobState::on_start() {
  return {SetTimer{start_timeout}};
}

HostsJobActions HostsJobState::on_started(std::size_t host, const std::string& version,
                                          const RemoteAddresses& addresses) {
  HostsJobActions actions;
  auto& self = hosts_.at(host);
  self.started = true;
  self.addresses = addresses;
  if (version != policy_.version)
    fail(actions, fmt::format("host {} has ddprun {}, and this is {}: both must be the same version", self.who.name,
                              version, policy_.version));
  if (phase_ == Phase::starting) request_launches(actions);
  return actions;
}

HostsJobActions HostsJobState::on_rendezvous(const std::string& endpoint) {
  HostsJobActions actions;
  if (endpoint_.empty()) endpoint_ = endpoint;
  if (phase_ == Phase::starting) request_launches(actions);
  return actions;
}

// The address at which other hosts connect to the first one. If the first host is this machine, it is the address that
// another host sees as the origin of its ssh connection.
std::string HostsJobState::rendezvous_address() const {
  const auto& first = hosts_.front();
  if (!first.who.local) return first.addresses.server.empty() ? first.who.name : first.addresses.server;
  bool others = false;
  for (const auto& host : hosts_) {
    if (!host.addresses.client.empty()) return host.addresses.client;
    others |= !host.who.local && !host.started;
  }
  return others ? "" : "127.0.0.1";
}

void HostsJobState::request_launches(HostsJobActions& actions) {
  auto& first = hosts_.front();
  if (endpoint_.empty() && first.started && !first.requested) {
    if (const auto address = rendezvous_address(); !address.empty()) {
      first.requested = true;
      actions.push_back(SendRequest{.host = 0, .endpoint = format_host_port(address, 0), .serves = true});
    }
  }
  for (std::size_t i = 0; i < hosts_.size() && !endpoint_.empty(); ++i) {
    if (!hosts_[i].started || std::exchange(hosts_[i].requested, true)) continue;
    actions.push_back(SendRequest{.host = i, .endpoint = endpoint_, .served_elsewhere = policy_.endpoint.empty()});
  }
  const auto requested = [](const Host& host) { return host.requested; };
  if (std::all_of(hosts_.begin(), hosts_.end(), requested)) phase_ = Phase::running;
}

HostsJobActions HostsJobState::on_exit_code(std::size_t host, int exit_code) {
  HostsJobActions actions;
  hosts_.at(host).exit_code = exit_code;
  if (exit_code == 0)
    success_ = true;
  else if (!first_code_ && phase_ < Phase::stopping)
    first_code_ = exit_code;
  return actions;
}

HostsJobActions HostsJobState::on_closed(std::size_t host, const std::string& reason) {
  HostsJobActions actions;
  auto& self = hosts_.at(host);
  if (std::exchange(self.closed, true)) return actions;
  if (!self.exit_code && phase_ < Phase::stopping) {
    if (self.started) {
      actions.push_back(LogError{fmt::format("lost contact with host {}: {}", self.who.name, reason)});
    } else {
      fail(actions, fmt::format("cannot start ddprun on host {}: {}", self.who.name, reason));
    }
  }
  // If an agent ended before all hosts had their request, it takes part in no rendezvous.
  if (phase_ == Phase::starting) stop_all(actions, SIGTERM);
  const auto left = std::count_if(hosts_.begin(), hosts_.end(), [](const Host& h) { return !h.closed; });
  if (left < policy_.min_nodes || success_) drain(actions);
  finish_if_all_closed(actions);
  return actions;
}

HostsJobActions HostsJobState::on_signal(int signal_number) {
  HostsJobActions actions;
  if (!signal_) signal_ = signal_number;
  if (phase_ < Phase::stopping) {
    stop_all(actions, signal_number);
  } else {
    send_signal(actions, signal_number);
    phase_ = Phase::closing;
    actions.push_back(SetTimer{close_timeout});
  }
  return actions;
}

HostsJobActions HostsJobState::on_timer() {
  HostsJobActions actions;
  if (phase_ == Phase::starting) {
    std::vector<std::string> silent;
    for (const auto& host : hosts_)
      if (!host.started) silent.push_back(host.who.name);
    if (silent.empty())
      fail(actions, fmt::format("host {} did not report its rendezvous endpoint within {} s", hosts_.front().who.name,
                                start_timeout.count()));
    else
      fail(actions, fmt::format("no message from host {} within {} s", fmt::join(silent, ", "), start_timeout.count()));
  } else if (phase_ == Phase::draining) {
    stop_all(actions, SIGTERM);
  } else if (phase_ >= Phase::stopping) {
    phase_ = Phase::closing;
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      if (!hosts_[i].closed) actions.push_back(KillConnection{i});
  }
  return actions;
}

void HostsJobState::send_signal(HostsJobActions& actions, int signal_number) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].closed) continue;
    // An agent without a launch request reads no signals yet; it ends with its connection.
    if (hosts_[i].requested)
      actions.push_back(SendSignal{i, signal_number});
    else
      actions.push_back(KillConnection{i});
  }
}

void HostsJobState::stop_all(HostsJobActions& actions, int signal_number) {
  if (phase_ >= Phase::stopping) return;
  phase_ = Phase::stopping;
  send_signal(actions, signal_number);
  actions.push_back(SetTimer{policy_.grace + exit_timeout});
}

void HostsJobState::drain(HostsJobActions& actions) {
  if (phase_ >= Phase::draining) return;
  phase_ = Phase::draining;
  actions.push_back(SetTimer{policy_.grace + detection_timeout});
}

void HostsJobState::fail(HostsJobActions& actions, const std::string& text) {
  actions.push_back(LogError{text});
  stop_all(actions, SIGTERM);
}

void HostsJobState::finish_if_all_closed(HostsJobActions& actions) {
  const auto closed = [](const Host& host) { return host.closed; };
  if (std::all_of(hosts_.begin(), hosts_.end(), closed)) actions.push_back(FinishHostsJob{result()});
}

int HostsJobState::result() const {
  if (signal_) return exit_for_signal(*signal_);
  if (success_) return exit_success;
  if (first_code_) return *first_code_;
  return exit_fault;
}

}  // namespace ddprun
