#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <type_traits>

namespace ddprun::cuda {

// A stream of the current device that is not ordered with the default one.
class Stream {
 public:
  enum class Priority { usual, high };
  explicit Stream(Priority priority);
  cudaStream_t get() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

// A point in a stream.
class Event {
 public:
  enum class Use { order, time };
  explicit Event(Use use);
  cudaEvent_t get() const { return event_.get(); }
  cudaEvent_t release() { return event_.release(); }
  void record(cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

// Makes all that is queued on `later` from now on begin after all that is queued on `earlier`.
void order(cudaStream_t earlier, cudaStream_t later);

}  // namespace ddprun::cuda
