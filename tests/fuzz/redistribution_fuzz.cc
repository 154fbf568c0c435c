// Plans of redistributions between arbitrary layouts: a process gets each element once, in its part, and both ends know
// of each message.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "tests/unit/parallel/sharding/seeded_redistributions.h"

using namespace ddprun;
using namespace ddprun::sharding;

namespace {

constexpr int most_ranks = 8;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Redistribution& given) {
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t, int, int>, int> ends;
  const int processes = testing::processes_of(given);
  for (int process = 0; process < processes; ++process) {
    const RedistributionPlan plan = plan_redistribution(given, process);
    std::set<std::pair<std::size_t, std::int64_t>> written;
    for (const Transfer& t : plan.transfers) {
      require(t.range.count() > 0 && t.read_offset >= 0 && t.write_offset >= 0);
      require(t.range.end <= given.tensors[t.tensor].elements());
      ends[{t.tensor, t.range.begin, t.range.end, t.source, t.destination}] += t.source == t.destination ? 2 : 1;
      if (t.destination != process) continue;
      for (std::int64_t i = 0; i < t.range.count(); ++i) require(written.emplace(t.tensor, t.write_offset + i).second);
    }
  }
  for (const auto& [transfer, times] : ends) require(times == 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t next = 0;
  testing::SeededLayouts random(
      [&](int low, int high) { return low + (next < size ? data[next++] : 0) % (high - low + 1); });
  check(testing::random_redistribution(std::move(random), most_ranks));
  return 0;
}
