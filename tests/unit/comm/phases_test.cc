// The steps that ranks go through together, over memory that threads share.
#include "ddprun/worker/comm/backends/shm/phases.h"

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
  SegmentLayout board{SharedSegment::create(SegmentLayout::bytes_for(2, slot_bytes)), 2, slot_bytes};
  std::atomic<bool> interrupted = false;
  Phases one{board, 0, interrupted};
  Phases other{board, 1, interrupted};
};

using Step = std::pair<std::size_t, std::size_t>;  // stage and chunk

std::vector<Step> steps_of(Phases& phases, std::size_t chunks, std::size_t stages) {
  std::vector<Step> steps;
  phases.pipeline(chunks, stages,
                  [&](std::size_t stage, std::size_t chunk, std::uint32_t) { steps.emplace_back(stage, chunk); });
  return steps;
}

}  // namespace

TEST_CASE("a rank goes ahead while another is still in its last phase, unless that one reads what it would write") {
  const std::size_t stages = GENERATE(2, 3);
  CAPTURE(stages);
  TwoRanks ranks;
  std::promise<void> go;
  std::thread slow([&, may = go.get_future()]() mutable {
    ranks.other.pipeline(1, stages, [&](std::size_t stage, std::size_t, std::uint32_t) {
      if (stage == stages - 1) may.wait();
    });
  });
  steps_of(ranks.one, 1, stages);
  CHECK(ranks.one.may_go_ahead() == (stages == 3));
  go.set_value();
  slow.join();
  CHECK(ranks.one.may_go_ahead());
}

TEST_CASE("a pipeline goes on from the step that its rank went ahead with") {
  TwoRanks ranks;
  std::vector<std::uint32_t> written;
  ranks.one.go_ahead([&](std::uint32_t phase) { written.push_back(phase); });
  std::thread behind([&] { steps_of(ranks.other, 2, 3); });
  CHECK(steps_of(ranks.one, 2, 3) == std::vector<Step>{{0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}});
  behind.join();
  CHECK(written == std::vector<std::uint32_t>{0});
  CHECK(ranks.one.current() == ranks.other.current());
}
