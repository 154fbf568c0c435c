#pragma once

#include "tests/bench/collectives/operations.h"
#include "tests/bench/collectives/subject.h"

namespace ddprun::bench {

// The operation by a process group.
struct GroupSubjectOptions {
  DType dtype = DType::float32;
  bool registered = false;  // its memory is allocated from the group
  bool blocking = true;     // else the work handle is waited for
  int in_flight = 1;        // parts of the buffer, an operation each, begun before any is waited for
};
std::unique_ptr<Subject> group_subject(ProcessGroup& group, const Operation& operation,
                                       const GroupSubjectOptions& options);

}  // namespace ddprun::bench
