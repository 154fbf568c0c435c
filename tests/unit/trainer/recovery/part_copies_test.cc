#include "worker/trainer/recovery/part_copies.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "worker/checkpoint/run_state.h"
#include "worker/digest/sha256.h"
#include "tests/numerics/layout_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

// Jobs whose ranks have parts of all kinds of state that a step changes.
const std::string of_pictures =
    "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 96\ntest_samples = 8\n"
    "[train]\nepochs = 3\nglobal_batch_size = 8\nprecision = fp16\nloss_scale_growth_interval = 2\nema = 0.9\n"
    "[optim]\nname = adam\nskip_outliers = 3\nschedule = plateau\nclip_norm = 1\n";
std::string of_text(const TextFile& file) {
  return file.keys({.context = 16, .layers = 2, .width = 16, .heads = 2}) +
         "dropout = 0.1\n[train]\nepochs = 3\nglobal_batch_size = 8\nema = 0.9\n[optim]\nname = adam\nclip_norm = 1\n";
}

struct Layout {
  std::string job;
  int ranks;
  bool has_replicas;  // whether the parts of a rank that is lost are at another one, too
};

// A rank of a job. Its copies may outlive its state.
struct Rank {
  explicit Rank(const TrainingJob& job) : replica(job), backup(replica.state, [](std::int64_t) {}) {}
  Replica replica;
  StepBackup backup;
};

std::unique_ptr<Session> session_of(Rank& rank, ProcessGroup& group) {
  return make_session(
      {.config = rank.replica.config, .datasets = rank.replica.datasets, .task = *rank.replica.task, .recovers = true},
      rank.replica.state, group);
}

StepResult make_step(Session& session, StepBackup& backup) {
  backup.begin_step();
  try {
    auto result = session.step(false);
    backup.end_step(result);
    return result;
  } catch (const Error&) {
    backup.undo_step();
    throw;
  }
}

void make_steps(Session& session, StepBackup& backup, int count) {
  for (int i = 0; i < count; ++i) make_step(session, backup);
}

// Returns the digest of the whole state, at rank 0.
std::string digest_of(Session& session) {
  const auto whole = session.gather_state();
  Sha256 hash;
  if (session.is_first())
    for (const auto* tensors : {&whole.model, &whole.optimizer, &whole.averages})
      for (const auto& [name, tensor] : *tensors)
        hash.update(std::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes()));
  auto run = session.state().run;
  run.world_size = 0;  // this value and the next one are a session's
  run.batch_size = 0;
  hash.update(checkpoint::to_json(run));
  session.release_whole_state();
  return hash.hex();
}

std::string undisturbed(const TrainingJob& job, int ranks, int steps) {
  std::string digest;
  run_ranks(ranks, [&](ProcessGroup& group) {
    Rank rank(job);
    const auto session = session_of(rank, group);
    make_steps(*session, rank.backup, steps);
    const auto own = digest_of(*session);
    if (group.rank() == 0) digest = own;
  });
  return digest;
}

using Copies = std::vector<std::unique_ptr<PartCopies>>;  // by rank

std::vector<Holdings> holdings_of(const Copies& copies) {
  std::vector<Holdings> all;
  for (const auto& each : copies) all.push_back(each->holdings());
  return all;
}

// Runs body once a rank, in a session that trains from the beginning and whose parts of the state the copies are of.
using Training = std::function<void(Rank& rank, PartCopies& own, Session& session)>;
void train_ranks(const TrainingJob& job, Copies& copies, const Training& body) {
  run_ranks(static_cast<int>(copies.size()), [&](ProcessGroup& group) {
    Rank rank(job);
    auto& own = copies[static_cast<std::size_t>(group.rank())];
    own = std::make_unique<PartCopies>();
    const auto session = session_of(rank, group);
    own->begin(*session, true);
    body(rank, *own, *session);
  });
}

// Makes steps, of which the first so many end with copies, and then loses a rank, or none.
Copies copies_after(const TrainingJob& job, int ranks, int kept_after, int steps,
                    std::optional<std::size_t> lost = {}) {
  Copies copies(static_cast<std::size_t>(ranks));
  train_ranks(job, copies, [&](Rank& rank, PartCopies& own, Session& session) {
    own.keep(0);
    make_steps(session, rank.backup, kept_after);
    own.keep(0);
    make_steps(session, rank.backup, steps - kept_after);
    own.set_aside(rank.backup);
  });
  if (lost) copies[*lost] = std::make_unique<PartCopies>();
  return copies;
}

// Restores the state and trains to the last step. Returns the digest then.
std::string restored(const TrainingJob& job, Copies& copies, const Catchup& catchup, int last) {
  std::string digest;
  run_ranks(static_cast<int>(copies.size()), [&](ProcessGroup& group) {
    Rank rank(job);
    auto& own = *copies[static_cast<std::size_t>(group.rank())];
    const auto session = session_of(rank, group);
    own.begin(*session, false);
    own.restore(rank.backup, catchup);
    make_steps(*session, rank.backup, last - static_cast<int>(catchup.step));
    const auto result = digest_of(*session);
    if (group.rank() == 0) digest = result;
    own.set_aside(rank.backup);
  });
  return digest;
}

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
