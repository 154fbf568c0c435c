#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::testing {

struct RecoveryOptions {
  std::uint64_t seed = 1;
  int ranks = 4;
  int steps = 12;
  int deaths = 6;    // the most that there may be
  int restarts = 6;  // --max_restarts
  int parts = 1;     // of the state; fewer than ranks: some have the same part
  int changes = 0;   // the most that there may be: a rank beyond the others joins or leaves. They need parts = 1, and
                     // the schedule itself decides the plans instead of the launcher's state
  int freezes = 0;   // the most that there may be: a rank stops, and may run on later
  int cuts = 0;      // the most that there may be: a rank that runs is cut off from the others
};

// The outcome of a schedule.
struct RecoveryOutcome {
  int deaths = 0;
  int deaths_while_forming = 0;  // or while a plan was awaited
  int deaths_while_copying = 0;
  int double_deaths = 0;  // two ranks died before the next plan
  int recoveries = 0;     // ranks that continued to train after a fault
  int copies = 0;         // states that a rank has received
  int replaced = 0;       // ranks that the launcher replaced
  int changes = 0;        // ranks that continued to train after an orderly change
  int left = 0;           // ranks that have left in order
  int freezes = 0;
  int lost = 0;                                            // ranks that a group lost although they were alive
  int returned = 0;                                        // ranks that ran again after their group had lost them
  int ended = 0;                                           // ranks that were lost, and that the launcher has ended
  int from_replicas = 0, from_copies = 0, from_start = 0;  // recoveries of a state of which ranks have parts
  bool unknown = false;             // those that know a rank which is lost have died: its process may have the state
  bool gave_up = false;             // no living rank had the state
  bool restarted = false;           // the launcher replaced no single rank any more
  std::vector<std::string> broken;  // promises that were broken, a line each
};

// One job under virtual time: the real RecoveryState of each rank, and the real AgentState of the
// launcher, which learns of deaths some time later and decides the plans; groups whose operations complete at some
// ranks and fail at others when a member dies, or when they lose one that froze or was cut off, whose process the
// launcher ends some time after one of them reports it. Promises: the members of a generation are the same at all of
// its ranks; each step changes the state exactly once in the lineage of every rank's state, so all have the digest of
// an undisturbed run; rank 0's records have each step once; a job gives up only where no living rank has the state, or
// one has left at the end of the run; the launcher replaces as many ranks as it has restarts, unless none is left or
// one has left at the end; and the job ends. Ranks that change groups in order go on after the step that they have
// made, if none has died since the last plan. Where ranks have parts of the state, the job begins again from its start
// only if two ranks have died since all had kept copies; if each part is at two ranks or more, it repeats steps only if
// two have died since all had trained on.
RecoveryOutcome run_recovery_schedule(const RecoveryOptions& options);

}  // namespace ddprun::testing
