#include "ddprun/worker/comm/execution/transport_group.h"

#include <algorithm>
#include <optional>
#include <stop_token>

#include "ddprun/worker/comm/execution/executor.h"
#include "ddprun/worker/comm/execution/group_health.h"
#include "ddprun/worker/comm/execution/message_executor.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

class TransportGroup final : public ProcessGroup {
 public:
  TransportGroup(std::shared_ptr<Transport> transport, const GroupOptions& options, GroupKind kind);
  ~TransportGroup() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override { return transport_->backend(); }

  WorkPtr start(const Call& call) override;
  RegisteredBuffer allocate(std::size_t bytes) override { return transport_->allocate(bytes); }
  std::optional<Error> failure() const override { return health_.cause(); }
  void abort(const std::string& reason) override;
  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override;

 private:
  milliseconds timeout_of(OpOptions options) const {
    return std::min(options.timeout.value_or(options_.timeout), longest_timeout);
  }
  void connect();

  const GroupOptions options_;
  const std::shared_ptr<Transport> transport_;
  const GroupKind kind_;

  // Destroyed from the last to the first: transfers use the health, and its monitor drops what the executor holds.
  std::unique_ptr<Executor> executor_;  // once connected
  GroupHealth health_;
  MessageExecutor transfers_;

  struct AbortOnStop {
    TransportGroup& group;
    const char* reason = "the group was told to stop";
    void operator()() const { group.abort(reason); }
  };
  std::optional<std::stop_callback<AbortOnStop>> abort_on_stop_;
};

TransportGroup::TransportGroup(std::shared_ptr<Transport> transport, const GroupOptions& options, GroupKind kind)
    : options_(options),
      transport_(std::move(transport)),
      kind_(kind),
      health_(options_, kind_.backend, *transport_),
      transfers_(*transport_, health_) {
  abort_on_stop_.emplace(options_.stop, AbortOnStop{*this});
  connect();
  executor_ = make_executor(*transport_, health_, {rank(), size()});
  health_.all_here(*executor_);
}

// What fails here, a connection or a peer's memory, may be the first sign of its death: the store says more, a moment
// later.
void TransportGroup::connect() {
  const std::stop_callback<AbortOnStop> give_up(options_.give_up,
                                                AbortOnStop{*this, "it was given up while it came together"});
  std::optional<Error> failure;
  try {
    const auto store = options_.connect_store();
    transport_->connect(*store, options_.prefix, deadline_after(options_.timeout));
    return;
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {  // a transport's own
    failure = Error(Errc::connection_lost, error.what());
  }
  if (const auto cause = health_.cause_behind(*failure)) throw Error(*cause);
  health_.publish({failure->code(), fmt::format("rank {} ({}): {}", rank(), health_.identity(), failure->what())});
  throw Error(*failure);
}

TransportGroup::~TransportGroup() {
  abort_on_stop_.reset();
  if (const int count = health_.unfinished(); count > 0) {
    health_.break_with(
        make_error(Errc::aborted, "the group was destroyed with {} operations unfinished", count),
        GroupFailure{Errc::peer_lost, fmt::format("rank {} ({}) left the group with {} operations unfinished", rank(),
                                                  health_.identity(), count)});
  }
  executor_->end();
}

WorkPtr TransportGroup::start(const Call& call) {
  const auto timeout = timeout_of(call.options);
  return call.operation.point_to_point() ? transfers_.submit(call, timeout) : executor_->submit(call, timeout);
}

void TransportGroup::abort(const std::string& reason) {
  health_.break_with(Error(Errc::aborted, reason),
                     GroupFailure{Errc::peer_lost, fmt::format("rank {} ({}) aborted the group: {}", rank(),
                                                               health_.identity(), reason)});
}

std::unique_ptr<ProcessGroup> TransportGroup::make_subgroup(const std::vector<int>& ranks, const std::string& name) {
  if (!kind_.make_sibling) return ProcessGroup::make_subgroup(ranks, name);
  const auto position = [&](int each) { return std::find(ranks.begin(), ranks.end(), each) - ranks.begin(); };
  auto options = options_;
  options.rank = static_cast<int>(position(rank()));
  options.size = static_cast<int>(ranks.size());
  options.prefix += "sub/" + name + "/";
  options.previous_group.reset();  // the whole group's
  options.store_host.reset();
  if (options_.store_host && position(*options_.store_host) < options.size)
    options.store_host = static_cast<int>(position(*options_.store_host));
  options.give_up = health_.broken_token();  // a rank that was lost before it came to the subgroup breaks the whole
  try {
    return kind_.make_sibling(options);
  } catch (const Error& error) {
    // Who was lost to the subgroup was lost to the whole, which names it by its rank there.
    const bool whole_will_hear = error.code() == Errc::peer_lost;
    if (const auto cause = health_.await_cause(whole_will_hear ? milliseconds(2000) : milliseconds(0)))
      throw Error(*cause);
    throw;
  }
}

}  // namespace

std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   GroupKind kind) {
  return std::make_unique<TransportGroup>(std::move(transport), options, kind);
}

}  // namespace ddprun::comm
