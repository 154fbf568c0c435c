#pragma once

#include <string_view>

namespace ddprun::testing::fake_nccl {

// Whether that function is to fail in this thread (FailsHere).
bool fails_here(std::string_view function);

}  // namespace ddprun::testing::fake_nccl
