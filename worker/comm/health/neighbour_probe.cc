#include "worker/comm/health/neighbour_probe.h"

#include <algorithm>

namespace ddprun::comm {

using std::chrono::milliseconds;

namespace {

// A look may come one interval after the heartbeat that it sees: that much of the bound has passed by then.
FreezeDetector::Clock::duration tolerated_silence(milliseconds bound, milliseconds beat, milliseconds interval) {
  if (bound.count() == 0) return FreezeDetector::Clock::duration::max();
  return std::max(bound, 3 * beat) - interval;
}

}  // namespace

NeighbourProbe::NeighbourProbe(RankRecords& records, int rank, milliseconds bound, milliseconds beat)
    : records_(records),
      rank_(rank),
      interval_(std::max(beat / 2, milliseconds(1))),
      watched_((rank + 1) % records.size()),
      silence_(tolerated_silence(bound, beat, interval_), interval_),
      next_look_(Clock::time_point::min()) {}

std::optional<Silence> NeighbourProbe::look(Clock::time_point now, bool all_joined) {
  if (now < next_look_) return std::nullopt;
  if (watched_ == rank_) {  // all others have left
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
    next_look_ = now;  // the next rank is due at once
    return std::nullopt;
  }
  silence_.look(record_ ? std::optional(record_->beat) : std::nullopt, now);
  return find_silence(all_joined);
}

// The watched rank is read once more: a heartbeat or a departure at the last moment counts.
std::optional<Silence> NeighbourProbe::find_silence(bool all_joined) {
  if (!silence_.suspicious()) {
    baseline_.reset();
    return std::nullopt;
  }
  if (!baseline_ && all_joined) baseline_ = records_.read_all();
  if (!silence_.frozen()) {
    next_look_ = std::min(next_look_, Clock::now() + silence_.left());
    return std::nullopt;
  }
  Silence result{.seconds = std::chrono::duration<double>(silence_.silence()).count(),
                 .observations = std::vector<Observation>(static_cast<std::size_t>(size()))};
  if (baseline_) result.observations = observe(*baseline_, records_.read_all());
  result.observations[static_cast<std::size_t>(watched_)] = {record_, records_.read(watched_)};
  return result;
}

}  // namespace ddprun::comm
