#include "worker/comm/health/operation_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/dtype.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t most_rows = 64;
// Eight buckets for each power of two, from a microsecond on: a median is exact to 5 %.
constexpr double buckets_per_octave = 8;
constexpr std::size_t buckets = 240;
constexpr double shortest = 1e-6;

std::size_t bucket_of(double seconds) {
  const double position = std::round(buckets_per_octave * std::log2(std::max(seconds, shortest) / shortest));
  return std::min(static_cast<std::size_t>(position), buckets - 1);
}

double seconds_of(std::size_t bucket) {
  return shortest * std::exp2(static_cast<double>(bucket) / buckets_per_octave);
}

}  // namespace

void OperationTimes::add(const Operation& operation, std::chrono::nanoseconds duration) {
  const std::uint64_t bytes = operation.count * size_of(operation.dtype);
  const int size_class = static_cast<int>(std::bit_width(bytes));
  const double seconds = std::chrono::duration<double>(duration).count();
  const std::lock_guard lock(mutex_);
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const KindTimes& known) {
    return known.kind == operation.kind && known.size_class == size_class;
  });
  if (row == rows_.end()) {
    if (rows_.size() == most_rows) return;
    rows_.push_back({.kind = operation.kind, .size_class = size_class, .counts = std::vector<std::uint32_t>(buckets)});
    row = rows_.end() - 1;
  }
  row->bytes += bytes;
  ++row->count;
  row->seconds += seconds;
  ++row->counts[bucket_of(seconds)];
}

OperationTiming OperationTimes::timing_of(const KindTimes& row) {
  std::uint64_t below = 0;
  std::size_t bucket = 0;
  while (bucket + 1 < buckets && 2 * (below += row.counts[bucket]) < row.count) ++bucket;
  return {.kind = std::string(name_of(row.kind)),
          .bytes = row.bytes / row.count,
          .count = row.count,
          .seconds = row.seconds,
          .median = seconds_of(bucket)};
}

std::vector<OperationTiming> OperationTimes::read() const {
  std::vector<OperationTiming> timings;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& row : rows_) timings.push_back(timing_of(row));
  }
  std::sort(timings.begin(), timings.end(),
            [](const auto& one, const auto& other) { return one.seconds > other.seconds; });
  timings.resize(std::min(timings.size(), OperationTiming::most));
  return timings;
}

}  // namespace ddprun::comm
