#include <cstdlib>

// The variable is set before the first call of a test asks how many devices there are.
[[maybe_unused]] static const int set = ::setenv("DDPRUN_CUDA_EMULATOR", "3", 0);
