#pragma once

#include "tests/unit/cuda/tested_module.h"

// The entries of the tested module's DeviceApi as functions that throw on failure.
namespace ddprun::cuda::testing {

inline DeviceContext& context_of(int ordinal) {
  DeviceContext* device = nullptr;
  test::check(test::device_api().open(ordinal, &device));
  return *device;
}

template <auto entry>
struct ModuleCall;
template <class... Parameters, Outcome (*DeviceApi::*entry)(DeviceContext*, Parameters...)>
struct ModuleCall<entry> {
  void operator()(DeviceContext& device, Parameters... parameters) const {
    test::check((test::device_api().*entry)(&device, parameters...));
  }
};

inline constexpr ModuleCall<&DeviceApi::matmul> matmul;
inline constexpr ModuleCall<&DeviceApi::batched_matmul> batched_matmul;
inline constexpr ModuleCall<&DeviceApi::conv2d> conv2d;
inline constexpr ModuleCall<&DeviceApi::conv2d_backward_input> conv2d_backward_input;
inline constexpr ModuleCall<&DeviceApi::conv2d_backward_weight> conv2d_backward_weight;
inline constexpr ModuleCall<&DeviceApi::max_pool2d> max_pool2d;
inline constexpr ModuleCall<&DeviceApi::max_pool2d_backward> max_pool2d_backward;
inline constexpr ModuleCall<&DeviceApi::avg_pool2d> avg_pool2d;
inline constexpr ModuleCall<&DeviceApi::avg_pool2d_backward> avg_pool2d_backward;
inline constexpr ModuleCall<&DeviceApi::adaptive_avg_pool2d> adaptive_avg_pool2d;
inline constexpr ModuleCall<&DeviceApi::adaptive_avg_pool2d_backward> adaptive_avg_pool2d_backward;
inline constexpr ModuleCall<&DeviceApi::batch_statistics> batch_statistics;
inline constexpr ModuleCall<&DeviceApi::inverse_deviation> inverse_deviation;
inline constexpr ModuleCall<&DeviceApi::batch_norm> batch_norm;
inline constexpr ModuleCall<&DeviceApi::batch_norm_backward> batch_norm_backward;

}  // namespace ddprun::cuda::testing
