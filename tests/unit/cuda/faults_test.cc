// The module's messages when a call, a kernel or the device itself has failed.
#include "worker/cuda/cuda_error.h"
#include "worker/cuda/emulator/machine.h"
#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/unit/cuda/arrays.h"
#include "tests/unit/cuda/kernels.h"

extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api();

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::testing;
using emulator::Machine;

namespace {

const DeviceApi& api() {
  return *ddprun_cuda_device_api();
}

// Makes a device that has failed usable again when the test ends.
class FailingDevice {
 public:
  FailingDevice() : context_(context_of(0)) {}
  ~FailingDevice() {
    Machine::get().calls().fail("");
    Machine::get().work_while_possible();
    Machine::get().device(0).fault = cudaSuccess;
  }
  FailingDevice(const FailingDevice&) = delete;
  FailingDevice& operator=(const FailingDevice&) = delete;

  DeviceContext& context() const { return context_; }
  void fail(const std::string& specification) const { Machine::get().calls().fail(specification); }
  // Returns the report of a wait for the device; empty if there is none.
  std::string synchronize() const {
    const Outcome outcome = api().synchronize(&context_, Queue::compute);
    return outcome == nullptr ? "" : outcome->text.data();
  }

 private:
  DeviceContext& context_;
};

// A row of four numbers of the device.
class Row {
 public:
  explicit Row(DeviceContext& device) : device_(device), memory_(device.memory, 4 * sizeof(float)) {
    view_.data = memory_.data();
    view_.rank = 1;
    view_.shape[0] = 4;
    view_.strides[0] = 1;
  }
  Outcome fill() const { return api().fill(&device_, view_, 1); }
  Outcome relu() const { return api().unary(&device_, functor::Unary::relu, {}, view_, view_); }

 private:
  DeviceContext& device_;
  Scratch memory_;
  View view_;
};

Child::Result run_hidden(const std::string& test, const std::map<std::string, std::string>& variables) {
  return Child({"/proc/self/exe", test}, variables).wait();
}

}  // namespace

TEST_CASE("each error of CUDA has its kind, and says what to do") {
  struct Case {
    int status;
    Errc code;
    std::vector<std::string> texts;
  };
  const std::vector<std::string> lost_context{"queued earlier", "context is lost", "CUDA_LAUNCH_BLOCKING=1"};
  const std::vector<std::string> lost_device{"the device has failed", "'NVRM: Xid'", "dmesg"};
  for (const auto& [status, code, texts] : std::vector<Case>{
           {cudaErrorIllegalAddress, Errc::io, lost_context},
           {cudaErrorMisalignedAddress, Errc::io, lost_context},
           {cudaErrorAssert, Errc::io, lost_context},
           {cudaErrorIllegalInstruction, Errc::io, lost_context},
           {cudaErrorHardwareStackError, Errc::io, lost_context},
           {cudaErrorInvalidAddressSpace, Errc::io, lost_context},
           {cudaErrorInvalidPc, Errc::io, lost_context},
           {cudaErrorLaunchTimeout, Errc::io, lost_context},
           {cudaErrorLaunchFailure, Errc::io, lost_context},
           {cudaErrorECCUncorrectable, Errc::io, lost_device},
           {cudaErrorNvlinkUncorrectable, Errc::io, lost_device},
           {cudaErrorContained, Errc::io, lost_device},
           {cudaErrorDevicesUnavailable, Errc::io, {"another process has the device to itself", "'NVRM: Xid'"}},
           {cudaErrorUnknown, Errc::io, {"no reason", "'NVRM: Xid'", "dmesg"}},
           {cudaErrorSystemNotReady, Errc::io, {"nvidia-fabricmanager"}},
           {cudaErrorSystemDriverMismatch, Errc::unsupported, {"different versions", "restart the host"}},
           {cudaErrorInsufficientDriver, Errc::unsupported, {"CUDA up to 13.0", "built with CUDA 13.0"}},
           {cudaErrorUnsupportedPtxVersion, Errc::unsupported, {"CUDA up to 13.0", "newer driver"}},
           {cudaErrorNoDevice, Errc::unsupported, {"nvidia-smi -L", "CUDA_VISIBLE_DEVICES"}},
           {cudaErrorNoKernelImageForDevice,
            Errc::unsupported,
            {"compute capability 9.0", "compiled for the emulator"}},
           {cudaErrorInvalidDeviceFunction, Errc::unsupported, {"compute capability 9.0"}},
           {cudaErrorInvalidPtx, Errc::unsupported, {"compute capability 9.0"}},
           {cudaErrorInvalidKernelImage, Errc::unsupported, {"compute capability 9.0"}},
           {cudaErrorInvalidValue, Errc::internal, {"invalid argument"}},
           {cudaErrorNotSupported, Errc::unsupported, {"cudaErrorNotSupported"}},
       }) {
    const FailingDevice device;
    device.fail("cudaStreamSynchronize:1:" + std::to_string(status));
    const Outcome outcome = api().synchronize(&device.context(), Queue::compute);
    REQUIRE(outcome != nullptr);
    const std::string text = outcome->text.data();
    CAPTURE(text);
    CHECK(outcome->code == code);
    CHECK_THAT(text, Catch::StartsWith("cudaStreamSynchronize failed on cuda:0: "));
    CHECK_THAT(text, Catch::Contains(cudaGetErrorName(static_cast<cudaError_t>(status))));
    for (const auto& part : texts) CHECK_THAT(text, Catch::Contains(part));
  }
}

TEST_CASE("an error without a row is one of the call itself") {
  CHECK(meaning_of_cuda_error(12345).fault == CudaFault::call);
  CHECK(meaning_of_cuda_error(12345).code == Errc::io);
  for (const auto& meaning : cuda_error_meanings) CHECK(meaning_of_cuda_error(meaning.status).advice == meaning.advice);
}

TEST_CASE("a kernel's fault is reported by a later call, with what was queued last, and so by all calls that follow") {
  const FailingDevice device;
  const Row row(device.context());
  for (int i = 0; i < 10; ++i) REQUIRE(row.fill() == nullptr);
  device.fail("cudaLaunchKernelExC:1:700");
  REQUIRE(row.relu() == nullptr);
  const std::string text = device.synchronize();
  CHECK_THAT(text, Catch::Contains("an illegal memory access was encountered (cudaErrorIllegalAddress)"));
  CHECK_THAT(text, Catch::EndsWith("; queued last: fill, fill, fill, fill, fill, fill, fill, unary"));
  CHECK(device.synchronize() == text);
  const Outcome later = row.fill();
  REQUIRE(later != nullptr);
  CHECK_THAT(later->text.data(), Catch::Contains("cudaErrorIllegalAddress"));
}

TEST_CASE("with CUDA_LAUNCH_BLOCKING=1 the operation at fault fails itself") {
  const auto result = run_hidden("launches a faulty kernel", {{"CUDA_LAUNCH_BLOCKING", "1"}});
  INFO(result.out);
  CHECK(result.code == 0);
}

TEST_CASE("launches a faulty kernel", "[.]") {
  const FailingDevice device;
  const Row row(device.context());
  REQUIRE(row.fill() == nullptr);
  device.fail("cudaLaunchKernelExC:1:716");
  const Outcome outcome = row.relu();
  REQUIRE(outcome != nullptr);
  CHECK_THAT(outcome->text.data(), Catch::StartsWith("the launch of a kernel failed on cuda:0: misaligned address") &&
                                       Catch::EndsWith("; reported by unary; queued last: fill"));
}

TEST_CASE("a driver that is too old is named with both versions, and none as such") {
  for (const auto& [driver, test] : {std::pair("12040", "has an old driver"), std::pair("0", "has no driver")}) {
    const auto result = run_hidden(test, {{"DDPRUN_CUDA_EMULATOR_DRIVER", driver}});
    INFO(result.out);
    CHECK(result.code == 0);
  }
}

TEST_CASE("has an old driver", "[.]") {
  int count = 0;
  const Outcome outcome = api().device_count(&count);
  REQUIRE(outcome != nullptr);
  CHECK(outcome->code == Errc::unsupported);
  CHECK_THAT(
      outcome->text.data(),
      Catch::EndsWith("the driver is for CUDA up to 12.4, the module was built with CUDA 13.0: a newer driver is "
                      "needed"));
}

TEST_CASE("has no driver", "[.]") {
  int count = 0;
  const Outcome outcome = api().device_count(&count);
  REQUIRE(outcome != nullptr);
  CHECK(outcome->code == Errc::unsupported);
  CHECK_THAT(outcome->text.data(), Catch::EndsWith("there is no NVIDIA driver on this host"));
}

TEST_CASE("an operation has the name of its function") {
  CHECK(operation_name<fill> == "fill");
  RecentOperations recent;
  CHECK(recent.text().empty());
  recent.add(operation_name<fill>);
  recent.add(operation_name<copy>);
  CHECK(recent.text() == "fill, copy");
}
