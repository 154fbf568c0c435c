#include "ddprun/worker/comm/health/neighbour_probe.h"

#include <algorithm>

namespace ddprun::comm {

using std::chrono::milliseconds;

namespace {

// A look may come one interval after the heartbeat that it sees: that much of the bound is gone by then.
FreezeDetector::Clock::duration silence_borne(milliseconds bound, milliseconds beat, milliseconds interval) {
  if (bound.count() == 0) return FreezeDetector::Clock::duration::max();
  return std::max(bound, 3 * beat) - interval;
}

}  // namespace

NeighbourProbe::NeighbourProbe(RankRecords& records, int rank, milliseconds bound, milliseconds beat, Describe describe)
    : records_(records),
      rank_(rank),
      interval_(std::max(beat / 2, milliseconds(1))),
      describe_(std::move(describe)),
      watched_((rank + 1) % records.size()),
      silence_(silence_borne(bound, beat, interval_)),
      next_look_(Clock::time_point::min()) {}

std::optional<Verdict> NeighbourProbe::look(Clock::time_point now, bool all_here) {
  if (now < next_look_) return std::nullopt;
  if (watched_ == rank_) {  // nobody else is left
    next_look_ = Clock::time_point::max();
    return std::nullopt;
  }
  next_look_ = now + interval_;
  record_ = records_.read(watched_);
  if (record_ && record_->left) {
    departed_[watched_] = *record_;
    watched_ = (watched_ + 1) % size();
    record_.reset();
    silence_.restart();
    baseline_.reset();
    next_look_ = now;  // the next one is due at once: a row of leavers takes no interval each
    return std::nullopt;
  }
  silence_.look(record_ ? std::optional(record_->beat) : std::nullopt, now);
  return judge(all_here);
}

std::optional<Verdict> NeighbourProbe::judge(bool all_here) {
  if (!silence_.suspicious()) {
    baseline_.reset();
    return std::nullopt;
  }
  if (!baseline_ && all_here) baseline_ = records_.read_all();
  if (!silence_.frozen()) {
    next_look_ = std::min(next_look_, Clock::now() + silence_.left());
    return std::nullopt;
  }
  const auto seconds = std::chrono::duration<double>(silence_.silence()).count();
  std::vector<Observation> observations(static_cast<std::size_t>(size()));
  if (baseline_) observations = observe(*baseline_, records_.read_all());
  const auto record = records_.read(watched_);
  observations[static_cast<std::size_t>(watched_)] = {record, record};
  return blame_silent(rank_, observations, seconds, describe_);
}

}  // namespace ddprun::comm
