// A step that fails at a rank whose parts of the state have copies: who makes the rest of it, and which step stands.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/trainer/recovery/part_copies_job.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::testing::part_copies;
using namespace ddprun::trainer;

namespace {

// Where a step fails at a rank: once it has told the others that it has all gradients, so that they make the step; or
// once it has updated its parts, before it gathers those of the others.
enum class Failure { before_update, after_update };

void fail_in_step(Session& session, Failure where) {
  session.listen_to_phases([where, optimizer_phases = 0](profiler::Phase phase, auto, auto) mutable {
    if (phase == &StepTimes::optimizer) ++optimizer_phases;  // gradients are set to zero, examined, and used
    if (where == Failure::before_update ? phase == &StepTimes::start : optimizer_phases == 3)
      throw Error(Errc::peer_lost, "a rank was lost");
  });
}

// Makes five steps and one that fails at the last rank. Then the other rank with the same part is lost.
Copies copies_after_failure(const TrainingJob& job, Failure where) {
  Copies copies(4);
  train_ranks(job, copies, [&](Rank& rank, PartCopies& own, Session& session) {
    own.keep(0);
    make_steps(session, rank.backup, 5);
    const bool is_last = session.group().rank() == 3;
    if (is_last) fail_in_step(session, where);
    bool failed = false;
    try {
      make_step(session, rank.backup);
    } catch (const Error&) {
      failed = true;
    }
    own.set_aside(rank.backup);
    if (is_last && !failed) throw Error(Errc::internal, "the last rank has made the step");
  });
  const auto parts = copies[3]->holdings().parts;
  const auto peer = std::ranges::find(parts, parts[3]) - parts.begin();
  copies[static_cast<std::size_t>(peer)] = std::make_unique<PartCopies>();
  return copies;
}

}  // namespace

TEST_CASE("a rank that has all of a step which fails makes the rest alone, and no rank repeats the step: same bits") {
  const TextFile text;
  const auto of_tokens = of_text(text);
  const auto layouts = std::vector{
      of_pictures + "[parallel]\nzero = 2\nshard_group = 2\n", of_pictures + "[parallel]\nzero = 3\nshard_group = 2\n",
      of_tokens + "[parallel]\ntensor = 2\n", of_tokens + "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = h.1\n"};
  const auto& layout = layouts.at(GENERATE(range(0u, 4u)));
  const auto where = GENERATE(Failure::before_update, Failure::after_update);
  CAPTURE(layout, where == Failure::before_update);
  const TrainingJob job(layout);
  auto copies = copies_after_failure(job, where);
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->from == StateSource::applied);
  CHECK(catchup->step == 6);
  CHECK(catchup->source == (copies[0]->holdings().parts.empty() ? 1 : 0));
  CHECK(catchup->lagging.size() == 1);
  CHECK(restored(job, copies, *catchup, 9) == undisturbed(job, 4, 9));
}

TEST_CASE("a step that no rank has made is not made by those that could") {
  const TrainingJob job(of_pictures + "[parallel]\nzero = 1\n");
  Copies copies(2);
  train_ranks(job, copies, [](Rank& rank, PartCopies& own, Session& session) {
    make_steps(session, rank.backup, 2);
    fail_in_step(session, Failure::before_update);
    try {
      make_step(session, rank.backup);
    } catch (const Error&) {
      own.set_aside(rank.backup);
    }
  });
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == 2);
  CHECK(restored(job, copies, *catchup, 4) == undisturbed(job, 2, 4));
}
