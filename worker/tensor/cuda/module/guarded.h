#pragma once

#include <exception>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/cuda/device_api.h"
#include "ddprun/worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// What is reported for the calling thread, until its next call.
Outcome failure(Errc code, const char* text);

// Makes the context's device the thread's own.
void make_current(const DeviceContext& device);

template <class Function>
Outcome outcome_of(const Function& function) {
  try {
    function();
    return nullptr;
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
    return outcome_of([&] {
      make_current(*device);
      function(*device, parameters...);
    });
  }
};

// An entry of DeviceApi from a function that throws: api.fill = guarded<fill>;
template <auto function>
inline constexpr auto guarded = &Guarded<function>::call;

}  // namespace ddprun::cuda
