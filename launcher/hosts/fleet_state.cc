#include "ddprun/launcher/hosts/fleet_state.h"

#include <algorithm>
#include <csignal>

#include <fmt/ranges.h>

#include "ddprun/common/exit_code.h"
#include "ddprun/common/host_port.h"

namespace ddprun {
namespace {

using std::chrono::seconds;

// From the first connection until an agent has said that it runs.
constexpr seconds start_patience{60};
// Until agents have noticed by themselves that another is gone.
constexpr seconds notice_patience{30};
// Beyond the grace, for an agent to end behind its workers.
constexpr seconds end_patience{15};
constexpr seconds close_patience{5};

}  // namespace

FleetState::FleetState(std::vector<FleetHost> hosts, FleetPolicy policy)
    : policy_(std::move(policy)), endpoint_(policy_.endpoint) {
  for (auto& host : hosts) hosts_.push_back({.who = std::move(host)});
}

FleetActions FleetState::on_start() {
  return {SetTimer{start_patience}};
}

FleetActions FleetState::on_here(std::size_t host, const std::string& version, const RemoteAddresses& addresses) {
  FleetActions actions;
  auto& self = hosts_.at(host);
  self.said_here = true;
  self.addresses = addresses;
  if (version != policy_.version)
    fail(actions, fmt::format("host {} has ddprun {}, and this is {}: they have to be the same", self.who.name, version,
                              policy_.version));
  if (phase_ == Phase::starting) order_those_here(actions);
  return actions;
}

FleetActions FleetState::on_meeting(const std::string& endpoint) {
  FleetActions actions;
  if (endpoint_.empty()) endpoint_ = endpoint;
  if (phase_ == Phase::starting) order_those_here(actions);
  return actions;
}

// Where others dial the first host. One that is this machine is dialled as another host sees this machine.
std::string FleetState::meeting_address() const {
  const auto& first = hosts_.front();
  if (!first.who.here) return first.addresses.server.empty() ? first.who.name : first.addresses.server;
  bool others = false;
  for (const auto& host : hosts_) {
    if (!host.addresses.client.empty()) return host.addresses.client;
    others |= !host.who.here && !host.said_here;
  }
  return others ? "" : "127.0.0.1";
}

void FleetState::order_those_here(FleetActions& actions) {
  auto& first = hosts_.front();
  if (endpoint_.empty() && first.said_here && !first.ordered) {
    if (const auto address = meeting_address(); !address.empty()) {
      first.ordered = true;
      actions.push_back(SendOrder{.host = 0, .endpoint = format_host_port(address, 0), .serves = true});
    }
  }
  for (std::size_t i = 0; i < hosts_.size() && !endpoint_.empty(); ++i) {
    if (!hosts_[i].said_here || std::exchange(hosts_[i].ordered, true)) continue;
    actions.push_back(SendOrder{.host = i, .endpoint = endpoint_, .served_elsewhere = policy_.endpoint.empty()});
  }
  const auto ordered = [](const Host& host) { return host.ordered; };
  if (std::all_of(hosts_.begin(), hosts_.end(), ordered)) phase_ = Phase::running;
}

FleetActions FleetState::on_exit(std::size_t host, int exit_code) {
  FleetActions actions;
  hosts_.at(host).exit_code = exit_code;
  if (exit_code == 0)
    success_ = true;
  else if (!first_code_ && phase_ < Phase::stopping)
    first_code_ = exit_code;
  return actions;
}

FleetActions FleetState::on_closed(std::size_t host, const std::string& how) {
  FleetActions actions;
  auto& self = hosts_.at(host);
  if (std::exchange(self.closed, true)) return actions;
  if (!self.exit_code && phase_ < Phase::stopping) {
    if (self.said_here) {
      failed_here_ = true;
      actions.push_back(SayError{fmt::format("lost contact with host {}: {}", self.who.name, how)});
    } else {
      fail(actions, fmt::format("cannot start ddprun on host {}: {}", self.who.name, how));
    }
  }
  // One that ended before all had their order will not be waited for by anybody.
  if (phase_ == Phase::starting) stop_all(actions, SIGTERM);
  const auto left = std::count_if(hosts_.begin(), hosts_.end(), [](const Host& h) { return !h.closed; });
  if (left < policy_.min_nodes || success_) wane(actions);
  finish_if_all_closed(actions);
  return actions;
}

FleetActions FleetState::on_signal(int signal_number) {
  FleetActions actions;
  if (!signal_) signal_ = signal_number;
  if (phase_ < Phase::stopping) {
    stop_all(actions, signal_number);
  } else {
    send_signal(actions, signal_number);
    phase_ = Phase::closing;
    actions.push_back(SetTimer{close_patience});
  }
  return actions;
}

FleetActions FleetState::on_timer() {
  FleetActions actions;
  if (phase_ == Phase::starting) {
    std::vector<std::string> silent;
    for (const auto& host : hosts_)
      if (!host.said_here) silent.push_back(host.who.name);
    if (silent.empty())
      fail(actions, fmt::format("host {} did not say where to meet within {} s", hosts_.front().who.name,
                                start_patience.count()));
    else
      fail(actions, fmt::format("no word from host {} within {} s", fmt::join(silent, ", "), start_patience.count()));
  } else if (phase_ == Phase::waning) {
    stop_all(actions, SIGTERM);
  } else if (phase_ >= Phase::stopping) {
    phase_ = Phase::closing;
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      if (!hosts_[i].closed) actions.push_back(CloseConnection{i});
  }
  return actions;
}

void FleetState::send_signal(FleetActions& actions, int signal_number) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].closed) continue;
    // One without an order reads no signals yet: the end of its connection is what it hears.
    if (hosts_[i].ordered)
      actions.push_back(SendSignal{i, signal_number});
    else
      actions.push_back(CloseConnection{i});
  }
}

void FleetState::stop_all(FleetActions& actions, int signal_number) {
  if (phase_ >= Phase::stopping) return;
  phase_ = Phase::stopping;
  send_signal(actions, signal_number);
  actions.push_back(SetTimer{policy_.grace + end_patience});
}

void FleetState::wane(FleetActions& actions) {
  if (phase_ >= Phase::waning) return;
  phase_ = Phase::waning;
  actions.push_back(SetTimer{policy_.grace + notice_patience});
}

void FleetState::fail(FleetActions& actions, const std::string& text) {
  failed_here_ = true;
  actions.push_back(SayError{text});
  stop_all(actions, SIGTERM);
}

void FleetState::finish_if_all_closed(FleetActions& actions) {
  const auto closed = [](const Host& host) { return host.closed; };
  if (std::all_of(hosts_.begin(), hosts_.end(), closed)) actions.push_back(FinishFleet{result()});
}

int FleetState::result() const {
  if (signal_) return exit_for_signal(*signal_);
  if (success_) return exit_success;
  if (first_code_) return *first_code_;
  return exit_fault;
}

}  // namespace ddprun
