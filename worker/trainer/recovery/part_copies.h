#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/recovery/positions.h"
#include "worker/trainer/recovery/neighbours.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_backup.h"

namespace ddprun::trainer {

// A rank holds this of a state of which ranks have parts, apart from the one that it trains: copies of its own parts
// and of a neighbour's after an earlier step (checkpoint.peers), and its parts of the state when the group failed. From
// these all ranks get their parts again. Those of a group of another size stay until all ranks have the next ones.
//
// Ownership: owns the copies; they are in host memory, or in files without names. Threads: one at a time. Errors: those
// of the group, and of zeros_in_file(); copies that are incomplete then do not count.
class PartCopies {
 public:
  // folder: that of the files, as the state is in such files (optim.offload); empty: memory.
  explicit PartCopies(std::filesystem::path folder = {}) : folder_(std::move(folder)) {}

  // Learns which rank has which parts; copies that are held stay. has_state: false if the session's state is to be
  // restored. To be called again when the ranks of the session have divided the state anew: if it fails, this object
  // holds what the parts were before, as the last step has left them. The session outlives the next set_aside().
  // Collective.
  void begin(Session& session, bool has_state);
  // Keeps copies of the state after the session's last step, in place of earlier ones once all ranks have theirs: each
  // rank sends its parts to a neighbour. steps: the seconds that this rank's steps since the last copies have taken.
  // Collective.
  struct Cost {  // at the slowest rank
    double copying = 0;
    double steps = 0;
  };
  Cost keep(double steps);
  // To be called between two steps before ranks leave the group in order: those give the parts that no other rank has
  // to some that stay. stays: by rank; if others are to leave after a first call, a second one replaces what it has
  // given. Collective.
  void hand_over(const std::vector<bool>& stays);
  // Returns whether some rank's parts of the state are nowhere else.
  bool has_sole_parts() const;
  // To be called before the session ends: copies its state, if it has one and stands between two steps. If a step has
  // failed, and backup has undone it, that is the state before the step; the one after it is copied as well if this
  // rank can end the step alone (Session::end_step()).
  void set_aside(StepBackup& backup);
  // Returns what this process can contribute to a state of the next group.
  Holdings holdings() const;
  // Gives the parts of the session's state, and of all that goes with it, the values that catchup says, and drops what
  // was set aside. REQUIRES: catchup.from is not checkpoint, and begin(). Collective.
  void restore(StepBackup& backup, const Catchup& catchup);
  // Forgets all copies: the session's state is that of a step, and from elsewhere.
  void begin_anew();

 private:
  // The parts of all ranks of a group.
  struct Layout {
    std::vector<sharding::PlacedTensor> tensors;
    std::vector<int> parts;  // by rank, their numbers
    int moves = 0;           // see Holdings

    int part_of(int rank) const { return parts.at(static_cast<std::size_t>(rank)); }
    std::size_t bytes_of(int rank) const;
  };
  // The parts of the state that one rank has.
  struct Copy {
    HeldPart held;
    std::shared_ptr<const Layout> layout;
    bool is_complete = false;  // all ranks have copies of this step
    std::string run;           // the run's state as JSON
    bool has_averages = false;
    Tensor bytes;  // the rank's parts of all tensors, in the order of the layout; then, of a kept copy, its own state
  };
  std::vector<Tensor> own_parts() const { return present_parts(*state_); }
  static std::vector<Tensor> present_parts(const StateParts& state);
  Tensor make_memory(std::size_t bytes) const;
  Tensor take_memory(std::size_t bytes);
  Copy copy_with(Tensor memory, int rank, bool applied) const;
  void set_aside_applied(bool ready);
  void end_step(StepBackup& backup);
  std::size_t kept_bytes(int rank) const;
  std::byte* pack(Tensor& bytes) const;
  void drop_earlier(std::size_t newest);
  const Copy& find(const Catchup& catchup, std::optional<int> part = {}) const;
  const std::byte* unpack(const Tensor& bytes) const;
  void exchange_parts(StepBackup& backup, const Catchup& catchup) const;
  Layout layout_before(const Catchup& catchup) const;
  void redistribute_parts(const Catchup& catchup) const;
  void restore_run(const Catchup& catchup) const;

  const std::filesystem::path folder_;
  Session* session_ = nullptr;
  bool has_state_ = false;                     // whether the session's state is of a step
  std::optional<StateParts> state_;            // handles on the session's
  std::shared_ptr<const Layout> layout_;       // that of the session
  std::vector<std::int64_t> own_state_bytes_;  // by rank, those of Session::own_state()
  Neighbours neighbours_;
  std::vector<Copy> copies_;   // the newest first, then those of a state that was set aside
  std::vector<Tensor> spare_;  // memory of copies that were dropped, for the next ones
  std::int64_t reached_ = 0;
};

}  // namespace ddprun::trainer
