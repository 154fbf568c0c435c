#pragma once

#include "tests/bench/collectives/operations.h"
#include "tests/bench/collectives/subject.h"

namespace ddprun::bench {

// An operation of a process group.
struct GroupSubjectOptions {
  DType dtype = DType::float32;
  bool registered = false;  // use memory allocated from the group
  bool blocking = true;     // false: wait for the Work
  int in_flight = 1;        // parts of the buffer, one operation each, all started before the first wait
};
std::unique_ptr<Subject> group_subject(ProcessGroup& group, const Operation& operation,
                                       const GroupSubjectOptions& options);

}  // namespace ddprun::bench
