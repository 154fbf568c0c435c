#include "worker/comm/health/publisher.h"

#include <unistd.h>

#include "common/host_port.h"
#include "common/log.h"
#include "common/wall_clock.h"
#include "worker/comm/bootstrap/host_evidence.h"
#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {

using std::chrono::milliseconds;

Publisher::Publisher(std::shared_ptr<Store> store, RankRecords& records, const GroupOptions& options,
                     const OperationLog& operation_log)
    : store_(std::move(store)),
      records_(records),
      options_(options),
      operation_log_(operation_log),
      identity_(identity_text(options.config.label, ::getpid(), local_host_name())),
      failure_key_(options_.prefix + "failure"),
      processes_key_(options_.prefix + "processes/" + host_evidence()),
      beside_store_key_(options_.prefix + "beside store") {}

void Publisher::join(std::string_view backend, const std::string& registration) {
  const ConfigClaim own{fmt::format("rank {} ({})", options_.rank, identity_), group_config(backend, options_)};
  renew_record(false);
  std::vector<StoreCall> calls{records_.publication(options_.rank, last_), AppendCall{processes_key_, registration}};
  if (options_.beside_store) calls.emplace_back(CompareSetCall{beside_store_key_, "", std::to_string(options_.rank)});
  calls.emplace_back(SetWillCall{failure_key_, encode(failure_by_loss(options_.rank, identity_))});
  calls.emplace_back(CompareSetCall{options_.prefix + "config", "", encode(own)});
  const auto results = store_->execute(calls, store_deadline());
  compare_config(own, results.back().value());
}

// The first rank to join sets the group's configuration. A rank that has another one fails the group before it forms,
// whichever ranks are still missing.
void Publisher::compare_config(const ConfigClaim& own, const std::string& first) {
  if (const auto mismatch = describe_mismatch(decode_claim(first), own)) {
    const auto failure = publish({Errc::mismatch, *mismatch});
    throw Error(failure.code, failure.message);
  }
}

RankRecord Publisher::current_record(bool left) const {
  RankRecord record{.beat = last_.beat + 1,
                    .left = left,
                    .size = options_.size,
                    .pid = ::getpid(),
                    .time = wall_clock(),
                    .host = local_host_name(),
                    .label = options_.config.label,
                    .timings = operation_log_.timings(),
                    .operations = recent_operations(operation_log_, Clock::now())};
  if (const auto latest = operation_log_.current()) {
    record.inside = latest->state == OperationLog::State::started;
    record.sequence = record.inside ? latest->sequence : latest->sequence + 1;
    record.operation = description_of(latest->operation);
  }
  return record;
}

void Publisher::renew_record(bool left) {
  last_ = current_record(left);
  next_beat_ = Clock::now() + heartbeat_of(options_.config);
}

void Publisher::beat(bool left) {
  renew_record(left);
  records_.publish(options_.rank, last_);
}

// Texts are compared: they have fewer digits of times than a record that was not read from one.
std::optional<RankRecord> Publisher::find_duplicate() {
  auto record = records_.read(options_.rank);
  if (!record || encode(*record) == encode(last_)) return std::nullopt;
  return record;
}

GroupFailure Publisher::publish(const GroupFailure& failure) {
  return decode_group_failure(store_->compare_set(failure_key_, "", encode(failure), store_deadline()));
}

std::optional<GroupFailure> Publisher::await_failure(Deadline deadline) {
  try {
    return decode_group_failure(store_->wait_get(failure_key_, deadline));
  } catch (const Error& error) {
    if (error.code() == Errc::timeout) return std::nullopt;
    throw;
  }
}

void Publisher::leave(Deadline deadline) {
  beat(true);
  try {
    store_->clear_will(deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
}

std::string Publisher::local_registrations() {
  return store_->get(processes_key_, store_deadline());
}

std::optional<int> Publisher::rank_beside_store() {
  if (!store_->check({beside_store_key_}, store_deadline())) return std::nullopt;
  return std::stoi(store_->get(beside_store_key_, store_deadline()));
}

}  // namespace ddprun::comm
