#pragma once

#include <cuda_runtime_api.h>
#include <functional>
#include <string_view>

// A fake CUDA and NCCL that use host memory, for programs whose ranks are threads: the functions that the nccl back end
// calls, so that its tests run without a GPU. A stream executes its work on a thread of its own. A collective completes
// once all ranks have called it, and never if they disagree; sends and receives match by their order between two ranks;
// an abort cancels the operations of its own rank and leaves the others waiting. It is linked instead of the libraries.
namespace ddprun::testing::fake_nccl {

// While one exists, CUDA reports all memory as device memory, not only what cudaMalloc returned.
class AllMemoryIsDevices {
 public:
  AllMemoryIsDevices();
  ~AllMemoryIsDevices();
  AllMemoryIsDevices(const AllMemoryIsDevices&) = delete;
  AllMemoryIsDevices& operator=(const AllMemoryIsDevices&) = delete;
};

// While one exists, that function fails on this thread.
class FailsHere {
 public:
  explicit FailsHere(std::string_view function);
  ~FailsHere();
  FailsHere(const FailsHere&) = delete;
  FailsHere& operator=(const FailsHere&) = delete;
};

// While one exists, NCCL refuses a communicator in which two ranks have the same device. Otherwise that is allowed,
// since most tests leave all ranks on the first device.
class RefusesSharedDevices {
 public:
  RefusesSharedDevices();
  ~RefusesSharedDevices();
  RefusesSharedDevices(const RefusesSharedDevices&) = delete;
  RefusesSharedDevices& operator=(const RefusesSharedDevices&) = delete;
};

// Queues a task on a stream; work that follows on the stream begins only after it.
void hold_stream(cudaStream_t stream, std::function<void()> task);
// Sets what ncclGetVersion returns.
void pretend_version(int code);
// That many copies fail from now on.
void break_copies(int count);
// All existing communicators report an asynchronous error.
void break_communicators();

// The number of communicators created so far: by the functions for that, and by ncclCommShrink.
struct CreatedCommunicators {
  int initialized = 0;
  int shrunk = 0;
  int shrunk_by_abort = 0;  // calls with NCCL_SHRINK_ABORT
  int most_ids = 1;         // the most of one communicator
};
CreatedCommunicators created_communicators();
// Returns whether an operation in progress of a communicator that was not shrunk reads or writes the memory.
bool device_uses(const void* data);
// Returns how many pieces of memory are registered with communicators.
int registrations();
// Returns how many pieces of page-locked memory of the host exist.
int pinned_pieces();

}  // namespace ddprun::testing::fake_nccl
