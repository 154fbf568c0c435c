#include "worker/comm/registry/device_group.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"

namespace ddprun::comm {
namespace {

// Stops the forming of the device group when the host group fails.
class FormingWatch {
 public:
  FormingWatch(const ProcessGroup& host, std::stop_source& forming)
      : thread_(start_signal_free_thread([this, &host, &forming] { watch(host, forming); })) {}
  ~FormingWatch() {
    {
      const std::lock_guard lock(mutex_);
      formed_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  FormingWatch(const FormingWatch&) = delete;
  FormingWatch& operator=(const FormingWatch&) = delete;

 private:
  void watch(const ProcessGroup& host, std::stop_source& forming) {
    constexpr std::chrono::milliseconds interval(20);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, interval, [this] { return formed_; })) {
      if (host.failure()) forming.request_stop();
    }
  }

  std::mutex mutex_;  // guards formed_
  std::condition_variable changed_;
  bool formed_ = false;
  std::thread thread_;  // last, as it uses all members above
};

struct StopForming {
  std::stop_source source;
  void operator()() { source.request_stop(); }
};

// Holds the timer of the operations of a group and of its subgroups, for one thread.
class TimerSlot {
 public:
  void set(OperationTimer* timer) {
    const std::lock_guard lock(mutex_);
    timer_ = timer;
    thread_ = std::this_thread::get_id();
  }
  // Returns null if there is none, or it is for another thread.
  OperationTimer* get() const {
    const std::lock_guard lock(mutex_);
    return thread_ == std::this_thread::get_id() ? timer_ : nullptr;
  }

 private:
  mutable std::mutex mutex_;  // guards the other members
  OperationTimer* timer_ = nullptr;
  std::thread::id thread_;
};

// The work of an operation with events of a timer.
class TimedWork final : public Work {
 public:
  TimedWork(WorkPtr work, std::shared_ptr<TimerSlot> slot, std::size_t number)
      : work_(std::move(work)), slot_(std::move(slot)), number_(number) {}

  void wait(Deadline deadline) override {
    OperationTimer* const timer = told_ ? nullptr : slot_->get();
    if (timer) timer->wait_begins();
    work_->wait(deadline);
    if (timer && !told_.exchange(true)) timer->finished(number_);
  }
  // While operations are timed, the host waits for each: what is not hidden behind other work is its wait.
  void order(void* stream, float* cancelled) override {
    if (!slot_->get()) return work_->order(stream, cancelled);
    wait(Deadline::never());
  }
  bool done() const override { return work_->done(); }
  std::optional<Error> error() const override { return work_->error(); }
  int source() const override { return work_->source(); }

 private:
  const WorkPtr work_;
  const std::shared_ptr<TimerSlot> slot_;
  const std::size_t number_;
  std::atomic<bool> told_ = false;
};

// Two groups of the same ranks. Without the second, why_deviceless says which rank has no device.
class DeviceGroup : public ProcessGroup {
 public:
  DeviceGroup(std::unique_ptr<ProcessGroup> host, std::unique_ptr<ProcessGroup> devices, int device,
              std::string why_deviceless, std::shared_ptr<TimerSlot> timer = std::make_shared<TimerSlot>())
      : host_(std::move(host)),
        devices_(std::move(devices)),
        device_(device),
        why_deviceless_(std::move(why_deviceless)),
        timer_(std::move(timer)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return host_->backend(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  RegisteredBuffer allocate_on(std::int32_t device, std::size_t bytes) override {
    if (device == host_memory) return host_->allocate(bytes);
    return devices_ ? devices_->allocate_on(device, bytes) : ProcessGroup::allocate_on(device, bytes);
  }
  bool accepts(std::int32_t device) const override { return device == host_memory || device == device_; }
  std::uint64_t bytes_sent() const override { return host_->bytes_sent() + (devices_ ? devices_->bytes_sent() : 0); }

  WorkPtr start(const Call& call) override {
    if (const auto cause = failure()) return failed_work(*cause);
    if (call.device() == host_memory) return host_->start(call);
    if (!devices_) refuse(call.operation);
    OperationTimer* const timer = size() > 1 && !call.operation.empty() ? timer_->get() : nullptr;
    return timer ? start_timed(call, *timer) : devices_->start(call);
  }
  void time_operations(OperationTimer* timer) override { timer_->set(timer); }

  std::optional<Error> failure() const override {
    if (auto cause = host_->failure()) return cause;
    return devices_ ? devices_->failure() : std::nullopt;
  }
  void abort(const std::string& reason) override {
    host_->abort(reason);
    if (devices_) devices_->abort(reason);
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    auto host = host_->make_subgroup(ranks, name);
    auto devices = devices_ ? devices_->make_subgroup(ranks, name) : nullptr;
    return std::make_unique<DeviceGroup>(std::move(host), std::move(devices), device_, why_deviceless_, timer_);
  }
  std::shared_ptr<Transport> reusable_transport() const override {
    return devices_ ? devices_->reusable_transport() : nullptr;
  }

 private:
  WorkPtr start_timed(const Call& call, OperationTimer& timer) {
    const auto [events, number] = timer.started(name_of(call.operation.kind));
    Call timed = call;
    timed.options.events = events;
    return std::make_shared<TimedWork>(devices_->start(timed), timer_, number);
  }

  // A collective breaks the group, as ranks that pass host memory wait for it.
  [[noreturn]] void refuse(const Operation& operation) {
    const auto reason = fmt::format("{} on memory of a device: {} keeps this group to memory of the host",
                                    describe(operation), why_deviceless_);
    if (!operation.point_to_point()) host_->abort(reason);
    throw Error(Errc::unsupported, reason);
  }

  const std::unique_ptr<ProcessGroup> host_;
  const std::unique_ptr<ProcessGroup> devices_;
  const int device_;
  const std::string why_deviceless_;
  const std::shared_ptr<TimerSlot> timer_;
};

// Forms the device group. The loss of a rank meanwhile shows in the host group.
std::unique_ptr<ProcessGroup> form(ProcessGroup& host, const GroupOptions& options, const MakeGroup& make_devices) {
  std::stop_source forming;
  const std::stop_callback<StopForming> on_stop(options.stop, StopForming{forming}),
      on_give_up(options.give_up, StopForming{forming});
  auto device_options = options;
  device_options.prefix += "device/";
  device_options.give_up = forming.get_token();
  try {
    const FormingWatch watching(host, forming);
    auto group = make_devices(device_options);
    if (const auto cause = host.failure()) throw Error(*cause);
    return group;
  } catch (const Error& error) {
    if (!host.failure()) host.abort(error.what());
    throw Error(error.code() == Errc::aborted ? *host.failure() : error);
  }
}

}  // namespace

GroupOptions host_options(GroupOptions options) {
  options.config.device.reset();
  return options;
}

StagedOptions staged_options(const GroupOptions& options) {
  return {.device = options.config.device.value(), .timeout = options.config.timeout};
}

std::unique_ptr<ProcessGroup> make_device_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options,
                                                const MakeGroup& make_devices) {
  auto devices = form(*host, options, make_devices);
  return std::make_unique<DeviceGroup>(std::move(host), std::move(devices), options.config.device.value(), "");
}

std::unique_ptr<ProcessGroup> make_deviceless_group(std::unique_ptr<ProcessGroup> host, int device, std::string why) {
  return std::make_unique<DeviceGroup>(std::move(host), nullptr, device, std::move(why));
}

}  // namespace ddprun::comm
