#include "ddprun/worker/comm/elastic_group.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <unistd.h>
#include <utility>
#include <variant>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/forming/agreement.h"
#include "ddprun/worker/comm/forming/backends.h"
#include "ddprun/worker/comm/forming/terms.h"
#include "ddprun/worker/comm/transport/deadline_after.h"
#include "ddprun/worker/comm/transport/heritage.h"
#include "ddprun/worker/comm/watch/verdict.h"

namespace ddprun {
namespace {

using comm::Agreement;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds answer_bound{10};  // of the store

std::string identity() {
  return fmt::format("pid {} on host {}", ::getpid(), local_host_name());
}

std::string generation_prefix(const GroupOptions& base, std::uint64_t generation) {
  return fmt::format("{}generation/{}/", base.prefix, generation);
}

// From when a member is counted in until its group has wills of its own: a death then breaks the group that the others
// come together in. Each attempt's group has keys of its own, so that nothing is left of one that was cancelled.
class StandInWill {
 public:
  StandInWill(std::shared_ptr<Store> store, const Agreement& agreement, const std::string& group)
      : store_(std::move(store)) {
    set_will(*store_, group + "failure", comm::encode(comm::loss_of(agreement.position(), identity())));
  }
  ~StandInWill() {
    try {
      store_->clear_will(Deadline::in(answer_bound));
    } catch (const Error& error) {
      log::debug("a will that need not be cleared: {}", error.what());
    }
  }
  StandInWill(const StandInWill&) = delete;
  StandInWill& operator=(const StandInWill&) = delete;

  // Without wills (a plain PyTorch store) deadlines will tell.
  static void set_will(Store& store, const std::string& key, const std::string& text) {
    try {
      store.set_will(key, text, Deadline::in(answer_bound));
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
    }
  }

 private:
  const std::shared_ptr<Store> store_;
};

// Carries an agreement's requests out in the store.
class AgreementSession {
 public:
  AgreementSession(Agreement& agreement, Store& store, const GroupOptions& base, std::stop_token stop)
      : agreement_(agreement),
        store_(store),
        connect_(base.connect_store),
        prefix_(generation_prefix(base, agreement.generation())),
        begun_(Clock::now()),
        deadline_(comm::deadline_after(base.timeout)),
        stop_(std::move(stop)),
        wake_on_stop_(stop_, Wake{store}) {}

  // Throws unless the members agree. Returns what stands in for the group's wills until it has some.
  std::unique_ptr<StandInWill> run() {
    auto request = agreement_.begin();
    while (!std::holds_alternative<Agreement::Committed>(request)) {
      if (auto* failed = std::get_if<Agreement::Failed>(&request)) {
        clear_will();
        throw Error(failed->error);
      }
      request = std::visit([this](const auto& each) { return this->carry_out(each); }, request);
    }
    clear_will();
    return std::move(stand_in_);
  }
  // Of the group that this attempt agrees upon.
  std::string group_prefix() const { return fmt::format("{}group/{}/", prefix_, agreement_.attempt()); }

 private:
  struct Wake {
    Store& store;
    void operator()() const noexcept { store.wake(); }
  };

  std::string key(const char* name) const {
    return fmt::format("{}attempt/{}/{}", prefix_, agreement_.attempt(), name);
  }
  std::string member_key(std::size_t position) const { return key("came/") + std::to_string(position); }
  static Deadline soon() { return Deadline::in(answer_bound); }

  Agreement::Request carry_out(const Agreement::Look&) {
    if (!store_.check({key("decision")}, soon())) return agreement_.looked(std::nullopt);
    return agreement_.looked(store_.get(key("decision"), soon()));
  }
  Agreement::Request carry_out(const Agreement::Propose& request) {
    return agreement_.proposed(store_.compare_set(key("proposal"), "", request.text, soon()));
  }
  Agreement::Request carry_out(const Agreement::CountIn& request) {
    StandInWill::set_will(store_, key("decision"), request.will);
    stand_in_ = std::make_unique<StandInWill>(connect_(), agreement_, group_prefix());
    store_.set(member_key(static_cast<std::size_t>(agreement_.position())), "", soon());
    return agreement_.counted(store_.add(key("count"), 1, soon()));
  }
  Agreement::Request carry_out(const Agreement::Decide& request) {
    return agreement_.decided(store_.compare_set(key("decision"), "", request.text, soon()));
  }
  Agreement::Request carry_out(const Agreement::Await&) {
    try {
      if (!stop_.stop_requested()) store_.wait({key("decision")}, deadline_);
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    if (store_.check({key("decision")}, soon())) return agreement_.decided(store_.get(key("decision"), soon()));
    if (stop_.stop_requested()) return agreement_.given_up();
    if (!deadline_.expired()) return Agreement::Await{};
    const auto waited = std::chrono::duration<double>(Clock::now() - begun_).count();
    return agreement_.deadline_passed(missing(), waited);
  }
  // run() ends at these.
  static Agreement::Request carry_out(const Agreement::Committed& request) { return request; }
  static Agreement::Request carry_out(const Agreement::Failed& request) { return request; }

  std::vector<std::string> missing() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < agreement_.members().size(); ++i)
      if (!store_.check({member_key(i)}, soon())) names.push_back(agreement_.members()[i]);
    return names;
  }

  void clear_will() {
    try {
      store_.clear_will(soon());
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) log::debug("agreeing on a group: {}", error.what());
    }
  }

  Agreement& agreement_;
  Store& store_;
  const std::function<std::shared_ptr<Store>()> connect_;
  const std::string prefix_;
  const Clock::time_point begun_;
  const Deadline deadline_;
  const std::stop_token stop_;
  const std::stop_callback<Wake> wake_on_stop_;
  std::unique_ptr<StandInWill> stand_in_;
};

}  // namespace

ElasticGroup::ElasticGroup(std::string backend, GroupOptions base, std::string self)
    : backend_(std::move(backend)), base_(std::move(base)), self_(std::move(self)) {
  auto placed = base_;
  placed.rank = 0;
  placed.size = 1;
  comm::check(placed);
  comm::find_backend(backend_);
}
ElasticGroup::~ElasticGroup() = default;

ProcessGroup& ElasticGroup::reconfigure(std::uint64_t generation, const std::vector<std::string>& members) {
  auto options = base_;
  options.size = static_cast<int>(members.size());
  Agreement agreement(generation, members, self_, identity(), comm::terms_of(backend_, options));
  std::stop_token stop;
  {
    const std::lock_guard lock(mutex_);
    if (generation < next_) {
      throw make_error(Errc::usage, "generation {} is over: this process has been in generation {} since", generation,
                       next_ - 1);
    }
    forming_ = {};
    stop = forming_.get_token();
  }
  std::unique_ptr<StandInWill> will;
  std::string prefix;
  try {
    AgreementSession session(agreement, store(), base_, stop);
    will = session.run();
    prefix = session.group_prefix();
  } catch (const Error& error) {
    if (error.code() == Errc::connection_lost || error.code() == Errc::timeout) store_.reset();
    const std::lock_guard lock(mutex_);
    if (stop.stop_requested()) throw Error(Errc::aborted, reason_);
    throw;
  }
  options.rank = agreement.position();
  options.prefix = prefix;
  options.store_host.reset();
  options.stop = stop;
  {
    const std::lock_guard lock(mutex_);
    next_ = generation + 1;
  }
  options.heritage = end_present(members);
  std::shared_ptr<ProcessGroup> next = comm::make_group(backend_, options);
  const std::lock_guard lock(mutex_);
  group_ = std::move(next);
  prefix_ = prefix;
  members_ = members;
  return *group_;
}

// A clean goodbye, unless operations are pending: those fail. Returns what it leaves to the next one.
std::shared_ptr<comm::Heritage> ElasticGroup::end_present(const std::vector<std::string>& next_members) {
  std::shared_ptr<ProcessGroup> before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(group_, nullptr);
  }
  auto transport = before ? before->legacy() : nullptr;
  if (!transport) return nullptr;
  comm::Heritage heritage{std::move(transport), prefix_, before->size(), {}};
  for (const auto& member : next_members) {
    const auto found = std::find(members_.begin(), members_.end(), member);
    heritage.kept.push_back(found == members_.end() ? -1 : static_cast<int>(found - members_.begin()));
  }
  return std::make_shared<comm::Heritage>(std::move(heritage));
}

Store& ElasticGroup::store() {
  if (!store_) store_ = base_.connect_store();
  return *store_;
}

std::shared_ptr<ProcessGroup> ElasticGroup::present() {
  const std::lock_guard lock(mutex_);
  return group_;
}

ProcessGroup& ElasticGroup::group() {
  const auto group = present();
  if (!group) throw make_error(Errc::usage, "member {} has not been in any generation that came together", self_);
  return *group;
}

void ElasticGroup::abort(const std::string& reason) {
  auto forming = [&] {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    return forming_;
  }();
  if (const auto group = present()) group->abort(reason);
  forming.request_stop();
}

}  // namespace ddprun
