#pragma once

#include <cstdint>

// For tests: what was called, and failures on request. The module exports them under these names (CudaModule::symbol).
extern "C" {

// How often a function was called since the last request, "*": any of them. 0 for one that does not exist.
std::uint64_t ddprun_cuda_emulator_calls(const char* function);
// The n-th call of a function from now on fails once: "function:n", "*:n" the n-th of all, "function" the first one.
// "": none. Ends the last request.
void ddprun_cuda_emulator_fail(const char* specification);
// Whether the failure that was asked for has happened.
bool ddprun_cuda_emulator_has_failed();

}  // extern "C"
