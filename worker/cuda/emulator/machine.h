#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/cuda/emulator/call_log.h"
#include "worker/cuda/emulator/memory.h"
#include "worker/cuda/emulator/random.h"
#include "worker/cuda/emulator/settings.h"

namespace ddprun::cuda::emulator {

using Time = std::chrono::nanoseconds;

// One piece of a stream's work. It returns false if it waits for something, and is called again.
using StreamOperation = std::function<bool()>;

// The cost of an operation on the clock of the devices: nothing for events, for waits for them and for allocations.
enum class Duration { none, work };

// An operation and the time when the host has queued it.
struct QueuedOperation {
  StreamOperation run;
  Duration duration;
  Time queued;
  bool has_waited = false;
};

}  // namespace ddprun::cuda::emulator

struct CUstream_st {
  int device;
  std::deque<ddprun::cuda::emulator::QueuedOperation> operations = {};
  ddprun::cuda::emulator::Time time{0};  // the time at which all that has run had ended
};

// The state is shared with the operations that record the event or wait for it.
struct CUevent_st {
  struct State {
    std::uint64_t recorded = 0, reached = 0;  // the number of times
    ddprun::cuda::emulator::Time time{0};
  };
  int device;
  bool is_timed;
  std::shared_ptr<State> state = std::make_shared<State>();
};

struct CUmemPoolHandle_st {
  int device;
};

namespace ddprun::cuda::emulator {

struct Device {
  Device(int ordinal, std::size_t bytes) : default_stream{ordinal}, pool{ordinal}, memory(bytes) {}
  CUstream_st default_stream;
  CUmemPoolHandle_st pool;
  DeviceMemory memory;
  cudaError_t fault = cudaSuccess;  // that of its work; every later call reports it
};

// All devices of this process. A stream has no thread: the work of all streams advances within the host's own calls, in
// an order that the seed chooses, so that a single-threaded program runs alike again. Device memory is open only
// meanwhile.
//
// Events get the times of a device whose streams run beside each other and beside the host: an operation begins when it
// is queued and the one before it on its stream has ended, and takes as long as its emulation, or a microsecond with
// Settings::counts_operations. It never ends later than the host can know.
//
// Threads: only the holder of its lock uses it. See Call.
class Machine {
 public:
  static Machine& get();

  std::mutex& mutex() { return mutex_; }
  const Settings& settings() const { return settings_; }
  Random& random() { return random_; }

  int device_count() const { return static_cast<int>(devices_.size()); }
  Device& device(int ordinal) { return *devices_[static_cast<std::size_t>(ordinal)]; }
  // Returns the device whose memory this is, or nullptr.
  Device* owner(const void* memory);
  std::string bus_id(int device) const;  // such as "0000:01:00.0"
  int& current_device();                 // that of the calling thread

  CUstream_st* add_stream(int device);
  void remove_stream(CUstream_st* stream);
  // Returns the stream itself, or the current device's default stream for nullptr; nullptr if it does not exist.
  CUstream_st* find_stream(cudaStream_t stream);

  CUevent_st* add_event(int device, bool is_timed);
  // Returns false if it does not exist.
  bool remove_event(CUevent_st* event) { return events_.erase(event) == 1; }
  bool has_event(CUevent_st* event) const { return events_.contains(event); }

  // Returns whether no stream of the device has work.
  bool is_idle(int device) const;
  // Adds to the end of the stream.
  void enqueue(CUstream_st* stream, StreamOperation operation, Duration duration = Duration::work);
  // Device memory can be read and written while one lives.
  class OpenMemory;

  // Lets some work happen, or none, as chance has it.
  void drift();
  // Works until done() holds; the lock is released for a moment whenever nothing can continue.
  void work_until(const std::function<bool()>& done);
  // Lets some work happen, one operation at least where one can continue: a caller that polls comes to an end.
  void work_some();
  // Works until nothing can continue.
  void work_while_possible();

  std::map<const char*, std::size_t>& pinned() { return pinned_; }
  std::unordered_map<const void*, int>& shared_memory_limits() { return shared_memory_limits_; }

  CallLog& calls() { return calls_; }
  // The function that is called for each call when it is over.
  struct Observer {
    void (*function)(const char* called, int device, void* context) = nullptr;
    void* context = nullptr;
  };
  Observer& observer() { return observer_; }

  // The numbers of objects that libraries made; runtime objects count themselves.
  std::uint64_t& communicators() { return communicators_; }
  std::uint64_t& library_objects() { return library_objects_; }
  // Implements ddprun_cuda_emulator_live().
  std::uint64_t live(std::string_view kind) const;

 private:
  Machine();
  // Takes one operation of a stream as far as it goes; returns false if nothing can continue.
  bool step();
  bool run_first(CUstream_st& stream);
  Time now() const;

  std::mutex mutex_;
  Settings settings_;
  Random random_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::unordered_map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
  std::vector<CUstream_st*> waiting_;                          // used by step()
  Time latest_{0};                                             // the latest of all streams
  std::map<const char*, std::size_t> pinned_;                  // memory of the host and its size
  std::unordered_map<const void*, int> shared_memory_limits_;  // by kernel, where they were raised
  CallLog calls_;
  Observer observer_;
  std::uint64_t communicators_ = 0, library_objects_ = 0;
};

class Machine::OpenMemory {
 public:
  explicit OpenMemory(Machine& machine);
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  Machine& machine_;
};

// The frame of every function of an API: it has the machine to itself, work of the devices advances, and a failure may
// be asked for.
//   const Call call("cublasLtMatmul");
//   if (call.fails()) return call.failure(CUBLAS_STATUS_INTERNAL_ERROR);
class Call {
 public:
  explicit Call(const char* function);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool fails() const { return fails_; }
  // Returns the code that was asked for, else the usual one.
  template <class Status>
  Status failure(Status usual) const {
    const std::optional<int> code = machine_.calls().failing_code();
    return fails_ && code ? static_cast<Status>(*code) : usual;
  }
  Machine& machine() const { return machine_; }
  Device& device() const { return machine_.device(machine_.current_device()); }

 private:
  Machine& machine_;
  std::unique_lock<std::mutex> lock_;
  const char* const function_;
  const Machine::Observer observer_;
  const bool fails_;
};

}  // namespace ddprun::cuda::emulator
