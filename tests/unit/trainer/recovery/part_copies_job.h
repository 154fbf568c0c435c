#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/digest/sha256.h"
#include "worker/trainer/recovery/part_copies.h"
#include "tests/numerics/layout_job.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

// Ranks whose parts of a state are copied and restored: shared by the tests of PartCopies.
namespace ddprun::testing::part_copies {

using namespace ddprun::trainer;

// Jobs whose ranks have parts of all kinds of state that a step changes.
inline const std::string of_pictures =
    "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 96\ntest_samples = 8\n"
    "[train]\nepochs = 3\nglobal_batch_size = 8\nprecision = fp16\nloss_scale_growth_interval = 2\nema = 0.9\n"
    "[optim]\nname = adam\nskip_outliers = 3\nschedule = plateau\nclip_norm = 1\n";
inline std::string of_text(const TextFile& file) {
  return file.keys({.context = 16, .layers = 2, .width = 16, .heads = 2}) +
         "dropout = 0.1\n[train]\nepochs = 3\nglobal_batch_size = 8\nema = 0.9\n[optim]\nname = adam\nclip_norm = 1\n";
}

// A rank of a job. Its copies may outlive its state.
struct Rank {
  explicit Rank(const TrainingJob& job) : replica(job), backup(replica.state, [](std::int64_t) {}) {}
  Replica replica;
  StepBackup backup;
};

inline std::unique_ptr<Session> session_of(Rank& rank, ProcessGroup& group) {
  return make_session(
      {.config = rank.replica.config, .datasets = rank.replica.datasets, .task = *rank.replica.task, .recovers = true},
      rank.replica.state, group);
}

inline StepResult make_step(Session& session, StepBackup& backup) {
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

inline void make_steps(Session& session, StepBackup& backup, int count) {
  for (int i = 0; i < count; ++i) make_step(session, backup);
}

// Returns the digest of the whole state, at rank 0.
inline std::string digest_of(Session& session) {
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

inline std::string undisturbed(const TrainingJob& job, int ranks, int steps) {
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

inline std::vector<Holdings> holdings_of(const Copies& copies) {
  std::vector<Holdings> all;
  for (const auto& each : copies) all.push_back(each->holdings());
  return all;
}

// Runs body once a rank, in a session that trains from the beginning and whose parts of the state the copies are of.
using Training = std::function<void(Rank& rank, PartCopies& own, Session& session)>;
inline void train_ranks(const TrainingJob& job, Copies& copies, const Training& body) {
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
inline Copies copies_after(const TrainingJob& job, int ranks, int kept_after, int steps,
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
inline std::string restored(const TrainingJob& job, Copies& copies, const Catchup& catchup, int last) {
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

}  // namespace ddprun::testing::part_copies
