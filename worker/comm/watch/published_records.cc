#include "ddprun/worker/comm/watch/published_records.h"

namespace ddprun::comm {

void PublishedRecords::publish(int rank, const RankRecord& record) {
  store_->set(key(rank), encode(record), deadline());
}

std::optional<RankRecord> PublishedRecords::read(int rank) {
  if (!store_->check({key(rank)}, deadline())) return std::nullopt;
  return decode_rank_record(store_->get(key(rank), deadline()));
}

PublishedRecords::Reading PublishedRecords::read_all() {
  std::vector<std::string> keys;
  for (int r = 0; r < size_; ++r) keys.push_back(key(r));
  Reading reading;
  for (const auto& text : store_->multi_get(keys, deadline())) reading.records.push_back(decode_rank_record(text));
  reading.at = Clock::now();
  return reading;
}

std::vector<Observation> observe(const PublishedRecords::Reading& before, const PublishedRecords::Reading& now) {
  std::vector<Observation> observations;
  for (std::size_t r = 0; r < now.records.size(); ++r) observations.push_back({before.records[r], now.records[r]});
  return observations;
}

}  // namespace ddprun::comm
