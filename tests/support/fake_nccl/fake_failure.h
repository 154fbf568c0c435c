#pragma once

#include <string_view>

namespace ddprun::testing::fake_nccl {

// Returns whether that function has to fail on this thread (FailsHere).
bool fails_here(std::string_view function);

}  // namespace ddprun::testing::fake_nccl
