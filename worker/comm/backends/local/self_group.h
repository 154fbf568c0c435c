#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Makes a group of one rank: it uses neither network nor threads; every operation is complete when its call returns.
std::unique_ptr<ProcessGroup> make_self_group();

}  // namespace ddprun::comm
