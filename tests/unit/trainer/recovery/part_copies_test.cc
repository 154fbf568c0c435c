#include "worker/trainer/recovery/part_copies.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/recovery/part_copies_job.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::testing::part_copies;
using namespace ddprun::trainer;

namespace {

struct Layout {
  std::string job;
  int ranks;
  bool has_replicas;  // whether the parts of a rank that is lost are at another one, too
};

}  // namespace

TEST_CASE("parts of a lost rank come from a replica, or all ranks return to the copies of a neighbour: the same bits") {
  const TextFile text;
  const auto of_tokens = of_text(text);
  const auto layouts =
      std::vector{Layout{of_pictures + "[parallel]\nzero = 1\n", 3, false},
                  Layout{of_pictures + "[parallel]\nzero = 2\n", 3, false},
                  Layout{of_pictures + "[parallel]\nzero = 3\n", 3, false},
                  Layout{of_pictures + "[parallel]\nzero = 3\nshard_group = 2\n", 4, true},
                  Layout{of_tokens + "[parallel]\ntensor = 2\n", 4, true},
                  Layout{of_tokens + "[parallel]\ntensor = 2\nzero = 1\n", 4, false},
                  Layout{of_tokens + "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = h.1\n", 4, true},
                  Layout{of_tokens + "[parallel]\ncontext = 2\nzero = 1\n", 4, false},
                  Layout{of_pictures + "[parallel]\nzero = 1\nhook = int4\n", 3, false},
                  Layout{of_pictures + "[parallel]\nzero = 1\nhook = topk\n", 3, false},
                  Layout{of_pictures + "[parallel]\nzero = 1\nhook = powersgd\nstart_powerSGD_iter = 2\n", 3, false},
                  Layout{of_tokens + "[parallel]\nzero = 1\npipeline = 2\nmicro_batches = 2\nhook = topk\n"
                                     "split = h.1\n",
                         4, false}};
  const auto& layout = layouts.at(GENERATE(range(0u, 12u)));
  const std::size_t lost = GENERATE(0u, 1u);
  CAPTURE(layout.job, lost);
  const TrainingJob job(layout.job);
  const auto expected = undisturbed(job, layout.ranks, 9);

  auto copies = copies_after(job, layout.ranks, 3, 5, lost);
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->from == (layout.has_replicas ? StateSource::applied : StateSource::copies));
  CHECK(catchup->step == (layout.has_replicas ? 5 : 3));
  CHECK(catchup->reached == 5);
  CHECK(catchup->lagging == std::vector{static_cast<int>(lost)});
  CHECK(restored(job, copies, *catchup, 9) == expected);
}

TEST_CASE("a group of fewer ranks gets other parts of the same state") {
  const std::string zero = GENERATE("1", "2", "3");
  CAPTURE(zero);
  const TrainingJob job(of_pictures + "[parallel]\nzero = " + zero + "\n");
  auto copies = copies_after(job, 4, 3, 5, 1);
  copies.erase(copies.begin() + 1);
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == 3);
  CHECK(catchup->holders.size() == 4);
  CHECK(restored(job, copies, *catchup, 3) == undisturbed(job, 4, 3));
}

TEST_CASE("parts of ranks that leave in order are with those that stay, and no step is repeated") {
  const std::string zero = GENERATE("1", "2", "3");
  const std::vector<bool> stays = GENERATE(std::vector{true, false, true, true}, std::vector{true, false, false, true},
                                           std::vector{true, false, false, false});
  const bool twice = GENERATE(false, true);  // others are told to leave once the first one has handed over
  CAPTURE(zero, stays, twice);
  const TrainingJob job(of_pictures + "[parallel]\nzero = " + zero + "\n");
  Copies copies(4);
  train_ranks(job, copies, [&](Rank& rank, PartCopies& own, Session& session) {
    make_steps(session, rank.backup, 5);
    if (twice) own.hand_over({true, false, true, true});
    own.hand_over(stays);
    own.set_aside(rank.backup);
  });
  for (std::size_t rank = 4; rank-- > 0;)
    if (!stays[rank]) copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(rank));
  const auto holdings = holdings_of(copies);
  for (const auto& each : holdings)
    for (const auto& held : each.held) CHECK(std::ranges::count(each.held, held) == 1);
  const auto catchup = compare_positions(holdings);
  REQUIRE(catchup);
  CHECK(catchup->step == 5);
  CHECK(catchup->from == StateSource::applied);
  CHECK(restored(job, copies, *catchup, 5) == undisturbed(job, 4, 5));
}

TEST_CASE("a rank that joins makes another group, and gets its parts of the same state from the others") {
  const std::string zero = GENERATE("1", "2", "3");
  CAPTURE(zero);
  const TrainingJob job(of_pictures + "[parallel]\nzero = " + zero + "\n");
  auto copies = copies_after(job, 3, 3, 5);
  copies.insert(copies.begin(), std::make_unique<PartCopies>());
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == 5);
  CHECK(catchup->from == StateSource::applied);
  CHECK(restored(job, copies, *catchup, 5) == undisturbed(job, 3, 5));
}

TEST_CASE("a failed restoration leaves what ranks hold as it was") {
  const TrainingJob job(of_pictures + "[parallel]\nzero = 1\n");
  auto copies = copies_after(job, 4, 3, 5, 1);
  copies.erase(copies.begin() + 1);
  const auto before = holdings_of(copies);
  const auto catchup = compare_positions(before);
  REQUIRE(catchup);
  run_ranks(3, [&](ProcessGroup& group) {
    Rank rank(job);
    auto& own = *copies[static_cast<std::size_t>(group.rank())];
    const auto session = session_of(rank, group);
    own.begin(*session, false);
    if (group.rank() == 1) group.abort("this rank is lost");
    try {
      own.restore(rank.backup, *catchup);
    } catch (const Error&) {
      // That of the group.
    }
    own.set_aside(rank.backup);
  });
  CHECK(holdings_of(copies) == before);
  CHECK(restored(job, copies, *catchup, 3) == undisturbed(job, 4, 3));
}

TEST_CASE("copies of a larger group's ranks stay until all ranks have the next ones") {
  const TrainingJob job(of_pictures + "[parallel]\nzero = 1\n");
  auto copies = copies_after(job, 4, 3, 5, 1);
  copies.erase(copies.begin() + 1);
  auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  restored(job, copies, *catchup, 4);
  copies[2] = std::make_unique<PartCopies>();  // it has given no copies to the others of the smaller group
  catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == 3);
  CHECK(catchup->holders == std::vector{0, 1, 1, 0});
  CHECK(restored(job, copies, *catchup, 3) == undisturbed(job, 4, 3));
}

TEST_CASE("copies stay where they are until the next ones are complete") {
  const TrainingJob job(of_pictures + "[parallel]\nzero = 1\n");
  auto copies = copies_after(job, 3, 3, 5, 2);
  auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  const auto once = restored(job, copies, *catchup, 6);
  copies[2] = std::make_unique<PartCopies>();  // before it has given copies to others
  catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->step == 3);
  CHECK(restored(job, copies, *catchup, 6) == once);
}

TEST_CASE("with a folder for the state, copies of parts are in files there") {
  const TempDir folder;
  const TrainingJob job(of_pictures + "offload = " + folder.path().string() + "\n[parallel]\nzero = 1\n");
  const auto files = [&] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find(folder.path().string()) != std::string::npos;
    return count;
  };
  std::vector<PartCopies> copies;
  for (int rank = 0; rank < 2; ++rank) copies.emplace_back(job.config().optim.offload);
  run_ranks(2, [&](ProcessGroup& group) {
    Rank rank(job);
    auto& own = copies[static_cast<std::size_t>(group.rank())];
    const auto session = session_of(rank, group);
    own.begin(*session, true);
    own.keep(0);
    make_steps(*session, rank.backup, 2);
    own.set_aside(rank.backup);
  });
  CHECK(files() == 6);  // each rank's own parts after two steps, and a neighbour's
}

TEST_CASE("without two neighbours there is no complete copy") {
  const TrainingJob job(of_pictures + "[parallel]\nzero = 1\n");
  auto copies = copies_after(job, 3, 3, 5, 1);
  copies[2] = std::make_unique<PartCopies>();
  CHECK_FALSE(compare_positions(holdings_of(copies)));
}

TEST_CASE("a rank that gets the step that stands keeps no error of a hook, the others keep theirs") {
  const TextFile text;
  const TrainingJob job(of_text(text) + "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = h.1\nhook = topk\n");
  std::vector<std::vector<float>> before(4), after(4);
  Copies copies(4);
  std::vector<std::unique_ptr<Rank>> ranks(4);
  const auto error_of = [](Session& session) {
    std::vector<float> error;
    for (const auto& state : session.own_state())
      if (const auto* values = static_cast<const float*>(state.span.data); state.span.dtype == DType::float32)
        error.insert(error.end(), values, values + state.span.count);
    return error;
  };
  const auto train = [&](int steps, std::size_t count) {
    run_ranks(4, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      auto own = std::make_unique<Rank>(job);
      auto kept = std::make_unique<PartCopies>();
      const auto session = session_of(*own, group);
      kept->begin(*session, true);
      own->backup.begin_session(*session);
      make_steps(*session, own->backup, steps);
      if (rank < count) before[rank] = error_of(*session);
      kept->set_aside(own->backup);
      own->backup.end_session();
      if (rank >= count) return;
      ranks[rank] = std::move(own);
      copies[rank] = std::move(kept);
    });
  };
  train(4, 4);
  train(5, 3);  // the last rank has not made the last step yet
  copies[1] = std::make_unique<PartCopies>();
  ranks[1] = std::make_unique<Rank>(job);
  const auto catchup = compare_positions(holdings_of(copies));
  REQUIRE(catchup);
  CHECK(catchup->from == StateSource::applied);
  CHECK(catchup->lagging == std::vector{1, 3});
  run_ranks(4, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    if (rank != 1) ranks[rank]->replica.state = Replica(job).state;
    const auto session = session_of(*ranks[rank], group);
    copies[rank]->begin(*session, false);
    copies[rank]->restore(ranks[rank]->backup, *catchup);
    ranks[rank]->backup.begin_session(*session);
    after[rank] = error_of(*session);
    copies[rank]->set_aside(ranks[rank]->backup);
    ranks[rank]->backup.end_session();
  });
  // Those that lag get the mean of the errors of the one other rank of their stage.
  for (const std::size_t rank : {0u, 1u}) CHECK(after[rank] == before[0]);
  for (const std::size_t rank : {2u, 3u}) CHECK(after[rank] == before[2]);
  CHECK(before[1] != before[0]);
  CHECK(before[3] != before[2]);
}
