#include "worker/comm/health/rank_records.h"

#include <numeric>
#include <utility>

namespace ddprun::comm {

void RankRecords::publish(int rank, const RankRecord& record) {
  store_->execute({publication(rank, record)}, deadline());
}

StoreCall RankRecords::publication(int rank, const RankRecord& record) const {
  return SetCall{key(rank), encode(record)};
}

std::optional<RankRecord> RankRecords::read(int rank) {
  const auto text = store_->execute({FindCall{key(rank)}}, deadline()).front();
  return text ? decode_rank_record(*text) : std::nullopt;
}

std::vector<std::optional<RankRecord>> RankRecords::read_some(const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(key(rank));
  std::vector<std::optional<RankRecord>> records;
  for (const auto& text : store_->multi_get(keys, deadline())) records.push_back(decode_rank_record(text));
  return records;
}

RankRecords::Snapshot RankRecords::read_all() {
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto records = read_some(ranks);
  return {Clock::now(), std::move(records)};
}

std::vector<Observation> observe(const RankRecords::Snapshot& before, const RankRecords::Snapshot& now) {
  std::vector<Observation> observations;
  for (std::size_t r = 0; r < now.records.size(); ++r) observations.push_back({before.records[r], now.records[r]});
  return observations;
}

}  // namespace ddprun::comm
