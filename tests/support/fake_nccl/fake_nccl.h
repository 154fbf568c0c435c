#pragma once

#include <string_view>

// CUDA and NCCL over the memory of the host, for programs whose ranks are threads: as much of both as the nccl back end
// calls, so that its tests run where there is no GPU. Streams carry their work out in threads of their own. A
// collective is done when all its ranks are in it, and never where they disagree; sends and receives match by their
// order between two ranks; an abort ends what its own rank is in and leaves the others waiting. Linked in, it takes the
// place of the libraries.
namespace ddprun::testing::fake_nccl {

// While one lives, CUDA takes all memory for a device's, and not only what cudaMalloc gave.
class AllMemoryIsDevices {
 public:
  AllMemoryIsDevices();
  ~AllMemoryIsDevices();
  AllMemoryIsDevices(const AllMemoryIsDevices&) = delete;
  AllMemoryIsDevices& operator=(const AllMemoryIsDevices&) = delete;
};

// While one lives, that function fails in this thread.
class FailsHere {
 public:
  explicit FailsHere(std::string_view function);
  ~FailsHere();
  FailsHere(const FailsHere&) = delete;
  FailsHere& operator=(const FailsHere&) = delete;
};

// While one lives, NCCL refuses a communicator of which two ranks have the same device. Otherwise they may, since tests
// leave all on the first.
class RefusesSharedDevices {
 public:
  RefusesSharedDevices();
  ~RefusesSharedDevices();
  RefusesSharedDevices(const RefusesSharedDevices&) = delete;
  RefusesSharedDevices& operator=(const RefusesSharedDevices&) = delete;
};

// What ncclGetVersion says from now on.
void pretend_version(int code);
// All communicators that live now meet an error on their own.
void break_communicators();

// How many communicators were made so far: by meeting anew, and of others by leaving ranks out.
struct Made {
  int anew = 0;
  int shrunk = 0;
};
Made made();

}  // namespace ddprun::testing::fake_nccl
