#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace ddprun::comm {

class SegmentReserve;

// Makes a group of one rank: it uses neither network nor threads; every operation is complete when its call returns.
// segments: its registered memory is taken from there; null: it is ordinary memory.
std::unique_ptr<ProcessGroup> make_self_group(std::shared_ptr<SegmentReserve> segments = nullptr);

}  // namespace ddprun::comm
