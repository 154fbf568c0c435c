#include "worker/comm/bootstrap/await_ranks.h"

#include <chrono>

#include "common/error.h"

namespace ddprun::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto interruption_interval = std::chrono::milliseconds(200);  // between two tests of the interruption
constexpr auto check_timeout = std::chrono::seconds(5);

Error missing(Store& store, const std::vector<RankKey>& keys, int size, Clock::duration waited) {
  std::string ranks;
  for (const auto& each : keys) {
    if (store.check({each.key}, Deadline::in(check_timeout))) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(each.rank);
  }
  return make_error(Errc::timeout, "rank(s) {} of {} did not join the group within {:.1f} s", ranks, size,
                    std::chrono::duration<double>(waited).count());
}

}  // namespace

std::vector<std::string> await_ranks(Store& store, const std::vector<RankKey>& keys, int size,
                                     const std::atomic<bool>& interrupted, Deadline deadline) {
  const auto begun = Clock::now();
  std::vector<std::string> names;
  for (const auto& each : keys) names.push_back(each.key);
  while (true) {
    if (interrupted) throw Error(Errc::aborted, "the group was interrupted while it formed");
    try {
      return store.multi_get(names, earlier(deadline, Deadline::in(interruption_interval)));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    if (deadline.expired()) throw missing(store, keys, size, Clock::now() - begun);
  }
}

std::vector<std::string> exchange(Store& store, const std::string& prefix, int rank, int size, const std::string& own,
                                  const std::atomic<bool>& interrupted, Deadline deadline) {
  std::vector<RankKey> keys;
  for (int r = 0; r < size; ++r) keys.push_back({r, prefix + std::to_string(r)});
  store.set(keys[static_cast<std::size_t>(rank)].key, own, deadline);
  return await_ranks(store, keys, size, interrupted, deadline);
}

}  // namespace ddprun::comm
