#include "launcher/control/group_progress.h"

#include <algorithm>
#include <map>

#include "common/error.h"
#include "common/host_port.h"
#include "common/wall_clock.h"
#include "launcher/control/status_text.h"
#include "rendezvous/store/tcp_store.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr int max_ranks = 1'000'000;  // larger groups are taken for invalid records

// Parses a record's key and removes the prefix of the job's generation. A program may use a prefix of its own, which is
// kept. Returns nullopt for keys of another generation.
std::optional<RankRecordKey> key_in(const std::string& own_prefix, const std::string& text) {
  auto key = parse_rank_record_key(text);
  if (!key) return std::nullopt;
  if (key->prefix.starts_with(own_prefix)) {
    key->prefix.erase(0, own_prefix.size());
  } else if (key->prefix.starts_with(worker_prefix())) {
    return std::nullopt;
  }
  while (key->prefix.ends_with('/')) key->prefix.pop_back();
  return key;
}

// Returns whether the record is from an earlier generation, judged by the hosts' clocks. It is for keys with a
// program's own prefix, which does not contain the generation.
bool is_stale(const JobStatus& job, const RankRecord& record) {
  constexpr milliseconds allowance(5'000);
  return job.phase == "running" && wall_clock() - record.time > job.since + allowance;
}

// The state of a worker's process if it does not run; otherwise empty.
std::string abnormal_state(const JobStatus& job, const RankRecord& record) {
  for (const auto& node : job.nodes)
    for (const auto& worker : node.workers)
      if (node.host == record.host && worker.now.pid == record.pid && worker.now.state != WorkerReport::State::running)
        return worker_state_text(worker);
  return "";
}

RankProgress progress_of(const JobStatus& job, RankRecord record) {
  RankProgress progress{.report_age = std::max(milliseconds(0), wall_clock() - record.time),
                        .process = abnormal_state(job, record)};
  progress.record = std::move(record);
  return progress;
}

void insert(GroupProgress& group, int rank, RankProgress progress) {
  const auto size = static_cast<std::size_t>(std::max(rank + 1, progress.record->size));
  if (group.ranks.size() < size) group.ranks.resize(size);
  group.ranks[static_cast<std::size_t>(rank)] = std::move(progress);
}

bool all_have_left(const GroupProgress& group) {
  return std::all_of(group.ranks.begin(), group.ranks.end(),
                     [](const auto& rank) { return rank.record && rank.record->left; });
}

}  // namespace

std::vector<GroupProgress> query_progress(const JobStatus& job, Deadline deadline, const StoreAccess& access) {
  if (job.store.empty())
    throw make_error(Errc::unreachable, "{} has no running workers, and therefore no store", job_name(job.run_id));
  const auto address = parse_host_port(job.store);
  TcpStore store(
      {.host = address.host, .port = address.port_or(0), .stop = access.stop, .credentials = access.credentials},
      deadline);
  const auto own_prefix = worker_prefix(job.generation) + "/";
  std::vector<std::string> texts;
  std::vector<RankRecordKey> keys;
  for (auto& text : store.list_keys(deadline)) {
    auto key = key_in(own_prefix, text);
    if (!key) continue;
    keys.push_back(std::move(*key));
    texts.push_back(std::move(text));
  }
  std::map<std::string, GroupProgress> groups;
  const auto records = store.multi_get(texts, deadline);
  for (std::size_t i = 0; i < records.size(); ++i) {
    auto record = decode_rank_record(records[i]);
    if (!record || keys[i].rank >= record->size || record->size > max_ranks) continue;
    if (!texts[i].starts_with(own_prefix) && is_stale(job, *record)) continue;
    auto& group = groups.try_emplace(keys[i].prefix, GroupProgress{keys[i].prefix, {}}).first->second;
    insert(group, keys[i].rank, progress_of(job, std::move(*record)));
  }
  std::vector<GroupProgress> current;
  for (auto& [name, group] : groups)
    if (!all_have_left(group)) current.push_back(std::move(group));
  return current;
}

}  // namespace ddprun
