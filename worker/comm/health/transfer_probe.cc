#include "worker/comm/health/transfer_probe.h"

#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {

void TransferProbe::look(Clock::time_point now, const PeerRecords& departed, Facts& facts) {
  if (const auto awaited = oldest_by_partner(operation_log_, now, beat_); !awaited.empty()) {
    const auto records = read_partners(awaited);
    for (const auto& entry : transfers_to_compare(operation_log_, now, beat_)) {
      const auto partner = records.find(entry.operation.peer);
      if (partner == records.end()) continue;
      facts.comparisons.push_back({stall_of(rank_, entry, now), partner->first, partner->second});
    }
    for (const auto& entry : awaited) add_departure(entry, records, now, facts);
  }
  if (const auto receive = receive_from_any(operation_log_)) add_departure(*receive, departed, now, facts);
}

PeerRecords TransferProbe::read_partners(const std::vector<OperationLog::Entry>& messages) {
  std::vector<int> partners;
  for (const auto& entry : messages) partners.push_back(entry.operation.peer);
  auto latest = records_.read_some(partners);
  PeerRecords records;
  for (std::size_t i = 0; i < partners.size(); ++i)
    if (latest[i]) records.emplace(partners[i], std::move(*latest[i]));
  return records;
}

void TransferProbe::add_departure(const OperationLog::Entry& entry, const PeerRecords& records, Clock::time_point now,
                                  Facts& facts) {
  auto own = stall_of(rank_, entry, now);
  if (!all_partners_left(own, records, facts.size)) return;
  const auto noticed = noticed_.try_emplace(own.partner(), now).first->second;
  const auto known_for = std::chrono::duration_cast<std::chrono::milliseconds>(now - noticed);
  facts.departures.push_back({std::move(own), records, known_for});
}

}  // namespace ddprun::comm
