// Phases: the synchronization of ranks while they use staging slots. Here the ranks are threads.
#include "worker/comm/backends/shm/phases.h"

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr std::size_t slot_bytes = 4096;

struct TwoRanks {
  SegmentLayout layout{SharedSegment::create(SegmentLayout::bytes_for(2, slot_bytes)), 2, slot_bytes};
  std::atomic<bool> interrupted = false;
  ProcessorSharing sharing_of_one{layout, 0}, sharing_of_other{layout, 1};
  Phases one{layout, 0, interrupted, sharing_of_one};
  Phases other{layout, 1, interrupted, sharing_of_other};
};

using Step = std::pair<std::size_t, std::size_t>;  // stage and chunk

std::vector<Step> steps_of(Phases& phases, std::size_t chunks, std::size_t stages) {
  std::vector<Step> steps;
  phases.pipeline(chunks, stages,
                  [&](std::size_t stage, std::size_t chunk, std::uint32_t) { steps.emplace_back(stage, chunk); });
  return steps;
}

}  // namespace

TEST_CASE("a rank starts early while another is in its last phase, unless that phase reads the slots it would write") {
  const std::size_t stages = GENERATE(2, 3);
  CAPTURE(stages);
  TwoRanks ranks;
  std::promise<void> go;
  std::thread slow([&, permission = go.get_future()]() mutable {
    ranks.other.pipeline(1, stages, [&](std::size_t stage, std::size_t, std::uint32_t) {
      if (stage == stages - 1) permission.wait();
    });
  });
  steps_of(ranks.one, 1, stages);
  CHECK(ranks.one.can_start_early() == (stages == 3));
  go.set_value();
  slow.join();
  CHECK(ranks.one.can_start_early());
}

TEST_CASE("a pipeline continues after the step that its rank started early") {
  TwoRanks ranks;
  std::vector<std::uint32_t> written;
  ranks.one.start_early([&](std::uint32_t phase) { written.push_back(phase); });
  std::thread behind([&] { steps_of(ranks.other, 2, 3); });
  CHECK(steps_of(ranks.one, 2, 3) == std::vector<Step>{{0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}});
  behind.join();
  CHECK(written == std::vector<std::uint32_t>{0});
  CHECK(ranks.one.current() == ranks.other.current());
}
