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
  const auto unit = (parts ? static_cast<std::size_t>(stage_.ranks()) : 1) * size_of(options_.dtype);
  return std::max(bytes / unit, std::size_t{1}) * unit;
}

std::vector<Latencies> Comparison::measure(const Subjects& subjects, std::size_t bytes) {
  bytes = rounded(bytes);
  std::vector<Latencies> times(subjects.size());
  std::vector<int> counts;
  for (const auto& subject : subjects) counts.push_back(agreed_count(*subject, bytes));
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
  const auto parts = operation_.part_in ? static_cast<std::size_t>(stage_.ranks()) : 1;
  const Span input{memory, bytes / size_of(options_.dtype) / parts, options_.dtype};
  binding_.bind(!subject.has_threads());
  for (int i = -1; i < count; ++i) {  // the first brings the memory of this subject back
    fill(input, options_.rank);
    if (subject.has_threads()) barrier_.wait();
    stage_.meet(options_.rank);
    const auto start = Clock::now();
    subject.run();
    const auto end = Clock::now();
    if (times && i >= 0) times->add(end - start);
  }
}

// Of the calls of one turn: rank 0 tries a few and says how many fit the time.
int Comparison::agreed_count(Subject& subject, std::size_t bytes) {
  calls(subject, bytes, 2, nullptr);
  constexpr int tries = 2;
  const auto start = Clock::now();
  calls(subject, bytes, tries, nullptr);
  const std::chrono::duration<double> each = (Clock::now() - start) / (tries + 1);
  const double fit = options_.seconds / turns / std::max(each.count(), 1e-7);
  const auto count = std::clamp(fit, 1.0, 2000.0);
  return static_cast<int>(stage_.agree(options_.rank, static_cast<std::int64_t>(count)));
}

// All ranks have made as many calls.
void Comparison::gather(Latencies& times) {
  const auto& own = times.nanoseconds();
  const auto bytes = std::min(own.size() * sizeof own[0], Stage::note_bytes);
  std::memcpy(stage_.note(options_.rank), own.data(), bytes);
  stage_.meet(options_.rank);
  Latencies all;
  for (int r = 0; r < stage_.ranks(); ++r) {
    const auto* const note = reinterpret_cast<const long long*>(stage_.note(r));
    for (std::size_t i = 0; i < bytes / sizeof own[0]; ++i) all.add(std::chrono::nanoseconds(note[i]));
  }
  stage_.meet(options_.rank);
  times = std::move(all);
}

void Comparison::check(Subject& subject, std::size_t bytes) const {
  if (!subject.output()) return;
  const auto parts = operation_.part_out ? static_cast<std::size_t>(stage_.ranks()) : 1;
  verify(operation_, {subject.output(), bytes / size_of(options_.dtype) / parts, options_.dtype}, options_.rank,
         stage_.ranks());
}

}  // namespace ddprun::bench
