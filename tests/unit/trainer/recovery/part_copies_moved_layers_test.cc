// Copies of parts where layers have moved from one stage of a pipeline to another.
#include "tests/support/catch.h"
#include "tests/unit/trainer/recovery/part_copies_job.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::testing::part_copies;
using namespace ddprun::trainer;

namespace {

// Two stages of three layers each. Its ranks say that those of the first stage take 3 ms, and those of the last
// rank 18.
const std::string of_stages =
    "[model]\nname = mlp\nhidden = 8 8 8 8 8\n[data]\nname = random\nsamples = 80\ntest_samples = 8\n"
    "[optim]\nname = adamw\nlr = 0.01\n[train]\nepochs = 100\nglobal_batch_size = 8\nema = 0.9\n"
    "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = fc4\nbalance = true\n";

std::unique_ptr<TrainSession> balanced_session(Rank& rank, ProcessGroup& group) {
  auto& replica = rank.replica;
  replica.state.layer_seconds.assign(6, 1e-3);
  const Seconds told(group.rank() + 1 == group.size() ? 18e-3 : 3e-3);
  return std::make_unique<TrainSession>(
      TrainJob{.config = replica.config, .datasets = replica.datasets, .task = *replica.task, .recovers = true},
      replica.state, group, [told](const StepTimes&) { return StepTimes{.backward = told}; });
}

// Makes steps until a layer has moved, at most 100.
void train_to_move(Session& session, StepBackup& backup) {
  for (StepResult result; result.balance.empty() && session.state().run.step < 100;) {
    result = make_step(session, backup);
    session.balance(result);
  }
}

}  // namespace

TEST_CASE("layers that have moved are at the stages of the next group, with the same bits") {
  const int ranks = GENERATE(2, 4);  // the stages of 4 have replicas
  const bool keeps = GENERATE(false, true);
  CAPTURE(ranks, keeps);
  const TrainingJob job(of_stages);
  Copies copies(static_cast<std::size_t>(ranks));
  std::int64_t moved = 0;
  run_ranks(ranks, [&](ProcessGroup& group) {
    Rank rank(job);
    auto& own = copies[static_cast<std::size_t>(group.rank())];
    own = std::make_unique<PartCopies>();
    const auto session = balanced_session(rank, group);
    own->begin(*session, true);
    make_steps(*session, rank.backup, 3);
    own->keep(0);
    train_to_move(*session, rank.backup);
    own->begin(*session, true);
    if (keeps) own->keep(0);
    if (group.rank() == 0) moved = session->state().run.step;
    make_steps(*session, rank.backup, 2);
    own->set_aside(rank.backup);
  });
  REQUIRE(moved < 100);
  copies[1] = std::make_unique<PartCopies>();
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == (ranks == 4 ? moved + 2 : keeps ? moved : 3));
  CHECK(catchup->moves == (ranks == 4 || keeps ? 1 : 0));
  const auto last = static_cast<int>(moved) + 5;
  CHECK(restored(job, copies, *catchup, last) == undisturbed(job, ranks, last));
}

TEST_CASE("if the group fails while a layer moves, the others hold their parts as they were before the move") {
  const TrainingJob job(of_stages);
  Copies copies(4);
  std::int64_t moved = 0;
  const auto to_move = [&](ProcessGroup& group, std::int64_t fails_after) {
    Rank rank(job);
    auto& own = copies[static_cast<std::size_t>(group.rank())];
    own = std::make_unique<PartCopies>();
    const auto session = balanced_session(rank, group);
    own->begin(*session, true);
    try {
      while (session->state().run.step + 1 < fails_after) {
        auto result = make_step(*session, rank.backup);
        session->balance(result);
      }
      if (group.rank() == 1) {
        make_step(*session, rank.backup);
        group.abort("a rank was lost");
      } else {
        train_to_move(*session, rank.backup);
      }
    } catch (const Error&) {
      // That of the group.
    }
    own->set_aside(rank.backup);
  };
  run_ranks(4, [&](ProcessGroup& group) {
    Rank rank(job);
    const auto session = balanced_session(rank, group);
    train_to_move(*session, rank.backup);
    if (group.rank() == 0) moved = session->state().run.step;
  });
  run_ranks(4, [&](ProcessGroup& group) { to_move(group, moved); });
  copies[1] = std::make_unique<PartCopies>();
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == moved);
  CHECK(catchup->moves == 0);
  CHECK(catchup->from == StateSource::applied);
  const auto last = static_cast<int>(moved) + 5;
  CHECK(restored(job, copies, *catchup, last) == undisturbed(job, 4, last));
}
