#pragma once

#include <cstdint>

// For tests: what was called and what exists, failures on request, another order. The module exports them under these
// names (CudaModule::symbol).
extern "C" {

// A function below is its name, "*" for any of them, or "function@device": by threads whose current device that is.

// How often a function was called since the last request. 0 for one that does not exist.
std::uint64_t ddprun_cuda_emulator_calls(const char* function);
// The n-th call of a function from now on fails once: "function:n", "*:n" the n-th of all, "function" the first one;
// with "function:n:code" it returns this code. "": none. Ends the last request.
void ddprun_cuda_emulator_fail(const char* specification);
// Whether the failure that was asked for has happened.
bool ddprun_cuda_emulator_has_failed();

// What was made and not destroyed, once all work that can be done is done: "device bytes", "pinned memory", "streams",
// "events", "communicators", "library objects" (handles and descriptors of cuBLASLt and cuDNN).
std::uint64_t ddprun_cuda_emulator_live(const char* kind);

// Is told of each call when it is over, on the calling thread, which may call CUDA again. null: nobody is.
using DdprunCudaEmulatorObserver = void(const char* function, int device, void* context);
void ddprun_cuda_emulator_observe(DdprunCudaEmulatorObserver* observer, void* context);

// As DDPRUN_CUDA_EMULATOR_SEED, from now on.
void ddprun_cuda_emulator_seed(std::uint64_t seed);

}  // extern "C"
