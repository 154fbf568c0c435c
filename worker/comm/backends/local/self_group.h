#pragma once

#include <memory>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// A world of one: no network, no thread; every operation is complete when its call returns.
std::unique_ptr<ProcessGroup> make_self_group();

}  // namespace ddprun::comm
