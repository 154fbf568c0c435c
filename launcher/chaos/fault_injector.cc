#include "launcher/chaos/fault_injector.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/log.h"

namespace ddprun {
namespace {

// The interval at which a fault that is due looks for a worker that runs.
constexpr std::chrono::milliseconds retry{50};
// The interval at which a leave that was refused is requested again.
constexpr std::chrono::milliseconds leave_retry{500};

}  // namespace

FaultInjector::FaultInjector(boost::asio::io_context& loop, const FaultPlan& plan, int node, Node callbacks)
    : timer_(loop), schedule_(plan, node, std::chrono::steady_clock::now()), node_(std::move(callbacks)) {
  wait();
}

FaultInjector::~FaultInjector() {
  for (const auto& freeze : freezes_) let_run(freeze.target);
}

void FaultInjector::wait() {
  auto time = std::max(schedule_.next(), std::chrono::steady_clock::now() + retry);
  for (const auto& freeze : freezes_) time = std::min(time, freeze.end);
  if (cut_) time = std::min(time, cut_->end);
  if (change_) time = std::min(time, change_->request);
  timer_.run_at(time, [this] {
    act();
    wait();
  });
}

void FaultInjector::act() {
  const auto now = std::chrono::steady_clock::now();
  end_faults(now);
  request_change(now);
  const auto targets = node_.running();
  const bool away = schedule_.away();
  if (targets.empty() && !away) return;
  if (const auto fault = schedule_.take(now))
    inject(*fault, away ? FaultTarget() : targets[fault->choice % targets.size()]);
}

void FaultInjector::request_change(FaultSchedule::Time now) {
  if (!change_ || change_->request > now) return;
  const bool leaves = change_->kind == FaultKind::leave;
  change_->request = now + (leaves ? leave_retry : retry);
  (leaves ? node_.leave : node_.join)();
}

void FaultInjector::end_faults(FaultSchedule::Time now) {
  std::erase_if(freezes_, [&](const Freeze& freeze) {
    if (freeze.end > now) return false;
    let_run(freeze.target);
    return true;
  });
  if (!cut_ || cut_->end > now) return;
  cut_.reset();
  log::info("--chaos: the network links of this node work again");
}

void FaultInjector::inject(const Fault& fault, const FaultTarget& target) {
  switch (fault.kind) {
    case FaultKind::kill:
      return send(target, SIGKILL);
    case FaultKind::freeze:
      send(target, SIGSTOP);
      freezes_.push_back({target, std::chrono::steady_clock::now() + fault.duration});
      return;
    case FaultKind::cut:
      return cut_links(fault);
    case FaultKind::leave:
    case FaultKind::join:
      if (change_ && change_->kind == fault.kind) return;
      change_ = {.kind = fault.kind, .request = std::chrono::steady_clock::now()};
  }
}

// A cut that comes while the links are cut prolongs that one.
void FaultInjector::cut_links(const Fault& fault) {
  try {
    if (!cut_) cut_.emplace();
    cut_->end = std::max(cut_->end, std::chrono::steady_clock::now() + fault.duration);
    log::info("--chaos cut the network links of this node for {:g} s",
              std::chrono::duration<double>(fault.duration).count());
  } catch (const Error& e) {
    log::warn("no fault: {}", e.what());
  }
}

void FaultInjector::left() {
  change_.reset();
  schedule_.left(std::chrono::steady_clock::now());
  wait();
}

void FaultInjector::stays(const std::string& why) {
  if (!change_ || change_->kind != FaultKind::leave || std::exchange(change_->refusal_logged, true)) return;
  log::info("--chaos: this node leaves later: {}", why);
}

void FaultInjector::joined() {
  if (!schedule_.away()) return;
  change_.reset();
  schedule_.joined(std::chrono::steady_clock::now());
  wait();
}

void FaultInjector::send(const FaultTarget& target, int signal_number) {
  if (const auto problem = node_.send(target.local_rank, signal_number); !problem.empty())
    log::warn("--chaos: no fault for local rank {}: {}", target.local_rank, problem);
}

// The worker may have ended meanwhile, and another one may have its rank.
void FaultInjector::let_run(const FaultTarget& target) {
  for (const auto& running : node_.running())
    if (running.pid == target.pid) send(target, SIGCONT);
}

}  // namespace ddprun
