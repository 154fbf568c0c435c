#pragma once

#include <cstdint>

// Functions for tests: what was called and what exists, failures on request, another order. The module exports them
// under these names (CudaModule::symbol).
extern "C" {

// A function below is its name, "*" for any, or "function@device" for calls by threads whose current device that is.

// Returns how often a function was called since the last request; 0 for one that does not exist.
std::uint64_t ddprun_cuda_emulator_calls(const char* function);
// Makes the n-th call of a function from now on fail once: "function:n", "*:n" for the n-th of all, "function" for the
// first; with "function:n:code" it returns this code. "" makes none fail. Ends the last request.
void ddprun_cuda_emulator_fail(const char* specification);
// Returns whether the failure that was asked for has happened.
bool ddprun_cuda_emulator_has_failed();

// Returns what was made and not destroyed, once all work that can be done is done: "device bytes" (without those that
// the pool keeps for later), "pinned memory", "streams", "events", "communicators", "library objects" (handles and
// descriptors of cuBLASLt and cuDNN).
std::uint64_t ddprun_cuda_emulator_live(const char* kind);

// Is called for each call when it is over, on the calling thread, which may call CUDA again. It may be null.
using DdprunCudaEmulatorObserver = void(const char* function, int device, void* context);
void ddprun_cuda_emulator_observe(DdprunCudaEmulatorObserver* observer, void* context);

// Sets what DDPRUN_CUDA_EMULATOR_SEED sets, from now on.
void ddprun_cuda_emulator_seed(std::uint64_t seed);

}  // extern "C"
