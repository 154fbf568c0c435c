#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/backends/mpi/mpi_memory.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The state that the operations of one group over MPI share. It outlives them.
struct MpiGroupContext {
  MpiLibrary& library;
  MpiFunctions::Communicator communicator;
  RankInfo rank_info;
  MpiMemory& memory;
  const std::atomic<bool>& interrupted;
};

class MpiNotices;

// Collectives over a communicator, by MPI's nonblocking functions. Besides each of them, every rank tells the next one
// what it calls: MPI itself may finish calls that differ.
//
// Threads: one call at a time. Errors: CallsDiffer; any std::exception when MPI fails or the group is interrupted; then
// the memory of what is unfinished is left to MPI until the process ends.
class MpiCollectives : public NonblockingCollectives {
 public:
  MpiCollectives(const MpiGroupContext& context, MpiNotices& notices);
  ~MpiCollectives() override;
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;

  void announce(const Collective&) noexcept override {}
  bool start(const Collective& collective) override;
  bool test(const Collective& collective, const Deadline& deadline) override;
  void execute(const Collective& collective);

 private:
  struct Pending;

  void begin(const Collective& collective);
  void prepare(Pending& pending, const Collective& collective);
  bool poll(Pending& pending, const Collective& collective);
  void compare(const Pending& pending, const Collective& collective) const;
  void finish(Pending& pending, const Collective& collective) const;
  void execute_in_pieces(const Collective& collective);
  void abandon_oldest() noexcept;

  const MpiGroupContext context_;
  MpiNotices& notices_;
  std::deque<std::unique_ptr<Pending>> pending_;
  std::vector<std::unique_ptr<Pending>> idle_;
};

}  // namespace ddprun::comm
