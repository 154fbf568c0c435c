#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

enum class DeviceType : std::uint8_t { cpu, cuda };

// The place of a tensor's memory and of its operations. "cpu:0" is the machine's processor. "cpu:1" and up are virtual
// devices on the same processor with memory accounting of their own: code for several devices is written and tested
// with them. "cuda:k" is the k-th CUDA device that this process sees.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr int max_devices = 64;  // the most of each type

// Returns a text such as "cpu:0".
std::string to_string(Device device);
// "cpu" is "cpu:0". Throws Errc::usage for anything that is not a device's name.
Device parse_device(std::string_view name);

// Returns the number of CUDA devices of this process. Throws Errc::unsupported without a CUDA module that works.
int cuda_device_count();
// Returns a text such as "cuda:0, NVIDIA H100 80GB HBM3", with "an emulated device" where it is one.
std::string describe_cuda_device(Device device);
// Sets whether products and convolutions of float32 tensors on a CUDA device multiply in TF32; at first they do not.
// Throws Errc::unsupported for a device before compute capability 8.0.
void allow_tf32(Device device, bool allow);
// Returns the bytes of a CUDA device that tensors can still get: those free, and those kept for the next allocation.
std::size_t available_memory(Device device);
// Waits until a CUDA device has computed all that is queued; throws what has failed.
void await_device(Device device);
// Returns the stream in whose order operations of a CUDA device compute (cudaStream_t); null for the host.
void* compute_stream(Device device);

// Memory of tensors on a device, in bytes, without what is cached for the next allocation.
struct MemoryStats {
  std::size_t allocated = 0;
  std::size_t peak = 0;  // the most since the start or the last reset_peak_memory()
};
// Returns those of the whole process. Thread-safe.
MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);

// Counts what its thread allocates less what it frees, on all devices, from its construction on: the same number in
// every run, whatever other threads do. One within another takes over until it ends.
// Threads: the one that made it.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Returns the most at any time, in bytes.
  std::size_t peak() const { return static_cast<std::size_t>(all_.peak); }
  // Does the same for only the devices of a type.
  std::size_t peak(DeviceType type) const {
    return static_cast<std::size_t>((type == DeviceType::cpu ? on_cpu_ : on_cuda_).peak);
  }
  void add(std::int64_t bytes, Device device);  // called by the allocator; negative for freed bytes

 private:
  struct Count {
    std::int64_t now = 0, peak = 0;
  };
  Count all_, on_cpu_, on_cuda_;
  MemoryWatch* before_;
};

}  // namespace ddprun
