#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

#include "common/error.h"
#include "common/memory_exhausted.h"
#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/kernel_fault.h"

namespace ddprun::cuda {

// Returns what is reported for the calling thread, until its next call.
Outcome failure(Errc code, const char* text);
Outcome failure(const MemoryExhausted& error);
// Does the same with the operation that reports it, and those that the current device was given last.
Outcome failure(const KernelFault& fault, std::string_view operation);

// Notes an operation that queues something for the device while it lives.
class OperationNote {
 public:
  OperationNote(DeviceContext& device, const std::string_view& name)
      : device_(device), name_(name), launches_(device.launches) {}
  ~OperationNote() {
    if (device_.launches != launches_) device_.recent.add(name_);
  }
  OperationNote(const OperationNote&) = delete;
  OperationNote& operator=(const OperationNote&) = delete;

 private:
  DeviceContext& device_;
  const std::string_view& name_;
  const std::uint64_t launches_;
};

// Makes the context's device the thread's own.
void make_current(const DeviceContext& device);

// operation: the name of the function; empty where it is not one of a device.
template <class Function>
Outcome outcome_of(const Function& function, std::string_view operation = {}) {
  try {
    function();
    return nullptr;
  } catch (const KernelFault& fault) {
    return failure(fault, operation);
  } catch (const MemoryExhausted& error) {
    return failure(error);
  } catch (const Error& error) {
    return failure(error.code(), error.what());
  } catch (const std::exception& error) {
    return failure(Errc::internal, error.what());
  }
}

template <auto function>
struct Guarded;
template <class... Parameters, void (*function)(DeviceContext&, Parameters...)>
struct Guarded<function> {
  static Outcome call(DeviceContext* device, Parameters... parameters) {
    return outcome_of(
        [&] {
          const OperationNote note(*device, operation_name<function>);
          make_current(*device);
          function(*device, parameters...);
        },
        operation_name<function>);
  }
};

// An entry of DeviceApi from a function that throws: api.fill = guarded<fill>;
template <auto function>
inline constexpr auto guarded = &Guarded<function>::call;

}  // namespace ddprun::cuda
