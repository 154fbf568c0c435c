#include "ddprun/launcher/chaos/fault_injector.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun {
namespace {

// The interval at which a fault that is due looks for a worker that runs.
constexpr std::chrono::milliseconds retry{50};

}  // namespace

FaultInjector::FaultInjector(boost::asio::io_context& loop, const FaultPlan& plan, int node, Workers workers)
    : timer_(loop), schedule_(plan, node, std::chrono::steady_clock::now()), workers_(std::move(workers)) {
  wait();
}

FaultInjector::~FaultInjector() {
  for (const auto& freeze : freezes_) let_run(freeze.target);
}

void FaultInjector::wait() {
  auto time = std::max(schedule_.next(), std::chrono::steady_clock::now() + retry);
  for (const auto& freeze : freezes_) time = std::min(time, freeze.end);
  if (cut_) time = std::min(time, cut_->end);
  timer_.expires_at(time);
  timer_.async_wait([this](boost::system::error_code failure) {
    if (failure) return;
    act();
    wait();
  });
}

void FaultInjector::act() {
  const auto now = std::chrono::steady_clock::now();
  end_faults(now);
  const auto targets = workers_.running();
  if (targets.empty()) return;
  if (const auto fault = schedule_.take(now)) inject(*fault, targets[fault->choice % targets.size()]);
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

void FaultInjector::send(const FaultTarget& target, int signal_number) {
  if (const auto problem = workers_.send(target.local_rank, signal_number); !problem.empty())
    log::warn("--chaos: no fault for local rank {}: {}", target.local_rank, problem);
}

// The worker may have ended meanwhile, and another one may have its rank.
void FaultInjector::let_run(const FaultTarget& target) {
  for (const auto& running : workers_.running())
    if (running.pid == target.pid) send(target, SIGCONT);
}

}  // namespace ddprun
