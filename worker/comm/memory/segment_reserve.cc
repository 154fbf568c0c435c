#include "worker/comm/memory/segment_reserve.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "common/blocked_signals.h"

namespace ddprun::comm {

void SegmentReserve::begin_group() {
  thread_ = {};
  const std::lock_guard lock(mutex_);
  sizes_.clear();
  ++group_;
}

SharedSegment SegmentReserve::take(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    sizes_.push_back(bytes);
    taken_.notify_all();
    if (!thread_.joinable()) start();
    if (const auto found = held_.find(bytes); found != held_.end()) {
      held_bytes_ -= bytes;
      return std::move(held_.extract(found).mapped().segment);
    }
  }
  return SharedSegment::create(bytes);
}

// Nothing is made ahead where memory, descriptors or threads are exhausted.
void SegmentReserve::start() try {
  const BlockedSignals blocked;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      fill(stop);
    } catch (const std::exception&) {
      // The segments that are held stay.
    }
  });
} catch (const std::system_error&) {
  // The next take() tries again.
}

std::size_t SegmentReserve::held() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

void SegmentReserve::fill(const std::stop_token& stop) {
  std::size_t made = 0;
  std::unique_lock lock(mutex_);
  while (taken_.wait(lock, stop, [&] { return sizes_.size() > made; })) {
    await_rest(lock, stop);
    for (; made < sizes_.size(); ++made) {
      const auto bytes = sizes_[made];
      if (!has_room_for(bytes)) continue;
      lock.unlock();
      auto segment = prepared(bytes, stop);
      lock.lock();
      if (!segment) return;
      held_.emplace(bytes, Held{std::move(*segment), group_});
      held_bytes_ += bytes;
    }
  }
}

// Drops segments that the present group could have taken, and has not, where they are in the way.
bool SegmentReserve::has_room_for(std::size_t bytes) {
  if (bytes > options_.most_bytes) return false;
  for (auto each = held_.begin(); held_bytes_ + bytes > options_.most_bytes && each != held_.end();) {
    if (each->second.made_in == group_) {
      ++each;
    } else {
      held_bytes_ -= each->first;
      each = held_.erase(each);
    }
  }
  return held_bytes_ + bytes <= options_.most_bytes;
}

// Returns once nothing has been taken for a while.
void SegmentReserve::await_rest(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  std::size_t before = 0;
  do {
    before = sizes_.size();
  } while (taken_.wait_for(lock, stop, options_.rest, [&] { return sizes_.size() > before; }));
}

// Returns none if it is not wanted any more. It pauses, since it competes with the training.
std::optional<SharedSegment> SegmentReserve::prepared(std::size_t bytes, const std::stop_token& stop) {
  constexpr std::size_t piece = std::size_t{256} << 10;
  constexpr std::chrono::milliseconds pause{1};
  auto segment = SharedSegment::create(bytes);
  for (std::size_t done = 0; done < bytes; done += piece) {
    if (stop.stop_requested()) return std::nullopt;
    std::memset(segment.data() + done, 0, std::min(piece, bytes - done));
    std::this_thread::sleep_for(pause);
  }
  return segment;
}

}  // namespace ddprun::comm
