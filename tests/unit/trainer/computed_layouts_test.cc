#include "worker/trainer/commands/computed_layouts.h"

#include <array>
#include <atomic>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

TEST_CASE("layouts are computed each once, and an error is that of its own layout") {
  constexpr std::size_t count = 50, failing = 7;
  std::array<std::atomic<int>, count> calls{};
  auto steps = compute_all(count, [&](std::size_t index) -> std::optional<ComputedStep> {
    ++calls[index];
    if (index == failing) throw Error(Errc::usage, "more stages than blocks");
    if (index % 2 == 0) return std::nullopt;
    return ComputedStep{.blocks = static_cast<std::int64_t>(index)};
  });
  REQUIRE(steps.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(calls[i] == 1);
    if (i == failing) {
      CHECK_THROWS_WITH(steps[i].get(), "more stages than blocks");
      continue;
    }
    const auto step = steps[i].get();
    CHECK(step.has_value() == (i % 2 == 1));
    if (step) CHECK(step->blocks == static_cast<std::int64_t>(i));
  }
}

TEST_CASE("no layouts take no computation") {
  CHECK(compute_all(0, [](std::size_t) -> std::optional<ComputedStep> { throw Error(Errc::internal, ""); }).empty());
}
