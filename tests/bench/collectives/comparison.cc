#include "tests/bench/collectives/comparison.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int turns = 10;

}  // namespace

std::size_t Comparison::rounded(std::size_t bytes) const {
  const bool parts = !operation_.in_place;
  const auto unit = (parts ? static_cast<std::size_t>(mapping_.ranks()) : 1) * size_of(options_.dtype);
  return std::max(bytes / unit, std::size_t{1}) * unit;
}

std::vector<Latencies> Comparison::measure(const Subjects& subjects, std::size_t bytes) {
  bytes = rounded(bytes);
  std::vector<Latencies> times(subjects.size());
  std::vector<int> counts;
  for (const auto& subject : subjects) counts.push_back(calls_per_turn(*subject, bytes));
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < subjects.size(); ++i) calls(*subjects[i], bytes, counts[i], &times[i]);
  }
  binding_.bind(true);
  for (const auto& subject : subjects) check(*subject, bytes);
  for (auto& each : times) gather(each);
  return times;
}

void Comparison::calls(Subject& subject, std::size_t bytes, int count, Latencies* times) {
  void* const memory = subject.input(bytes);
  const auto parts = operation_.part_in ? static_cast<std::size_t>(mapping_.ranks()) : 1;
  const Span input{memory, bytes / size_of(options_.dtype) / parts, options_.dtype};
  binding_.bind(!subject.has_threads());
  for (int i = -1; i < count; ++i) {  // the first one is not measured: it loads the memory into the caches
    fill(input, options_.rank);
    if (subject.has_threads()) barrier_.wait();
    mapping_.barrier(options_.rank);
    const auto start = Clock::now();
    subject.run();
    const auto end = Clock::now();
    if (times && i >= 0) times->add(end - start);
  }
}

// Rank 0 measures a few calls and decides how many fit into the time of one turn.
int Comparison::calls_per_turn(Subject& subject, std::size_t bytes) {
  calls(subject, bytes, 2, nullptr);
  constexpr int tries = 2;
  const auto start = Clock::now();
  calls(subject, bytes, tries, nullptr);
  const std::chrono::duration<double> each = (Clock::now() - start) / (tries + 1);
  const double fit = options_.seconds / turns / std::max(each.count(), 1e-7);
  const auto count = std::clamp(fit, 1.0, 2000.0);
  return static_cast<int>(mapping_.broadcast(options_.rank, static_cast<std::int64_t>(count)));
}

// Every rank has made the same number of calls.
void Comparison::gather(Latencies& times) {
  const auto& own = times.nanoseconds();
  const auto bytes = std::min(own.size() * sizeof own[0], SharedMapping::message_bytes);
  std::memcpy(mapping_.message(options_.rank), own.data(), bytes);
  mapping_.barrier(options_.rank);
  Latencies all;
  for (int r = 0; r < mapping_.ranks(); ++r) {
    const auto* const values = reinterpret_cast<const long long*>(mapping_.message(r));
    for (std::size_t i = 0; i < bytes / sizeof own[0]; ++i) all.add(std::chrono::nanoseconds(values[i]));
  }
  mapping_.barrier(options_.rank);
  times = std::move(all);
}

void Comparison::check(Subject& subject, std::size_t bytes) const {
  if (!subject.output()) return;
  const auto parts = operation_.part_out ? static_cast<std::size_t>(mapping_.ranks()) : 1;
  verify(operation_, {subject.output(), bytes / size_of(options_.dtype) / parts, options_.dtype}, options_.rank,
         mapping_.ranks());
}

}  // namespace ddprun::bench
