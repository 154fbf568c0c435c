#include "ddprun/worker/comm/registry/auto_group.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/nccl/nccl_group.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/completion.h"
#include "ddprun/worker/comm/registry/host_group.h"

namespace ddprun::comm {
namespace {

// The device of the first memory that a call names, even if this rank passes none of its own.
std::optional<int> device_named_in(const Call& call) {
  const auto of_any = [](const auto& spans) -> std::optional<int> {
    for (const auto& each : spans)
      if (each.data) return device_of(each.data);
    return std::nullopt;
  };
  if (call.operation.coalesced()) return of_any(call.layout->inputs);
  return device_of(call.input.data ? call.input.data : call.output.data);
}

// Two groups: one for host memory, and one for device memory, which the first collective on such memory forms.
class AutoGroup : public ProcessGroup {
 public:
  explicit AutoGroup(const GroupOptions& options) : options_(options), host_(make_host_group(options, &deviceless_)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return host_->backend(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }

  WorkPtr start(const Call& call) override {
    const auto device = device_named_in(call);
    if (const auto cause = failure()) return failed_work(*cause);
    return device ? start_on(*device, call) : host_->start(call);
  }

  // A failure of either group ends both.
  std::optional<Error> failure() const override {
    if (auto cause = host_->failure()) return cause;
    const auto* const devices = devices_.load();
    return devices ? devices->failure() : std::nullopt;
  }

  void abort(const std::string& reason) override {
    host_->abort(reason);
    if (auto* const devices = devices_.load()) devices->abort(reason);
    forming_.request_stop();  // last, as the forming group would give it as the reason
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    return host_->make_subgroup(ranks, name);
  }
  std::shared_ptr<Transport> reusable_transport() const override {
    const auto* const devices = devices_.load();
    return devices ? devices->reusable_transport() : nullptr;
  }

 private:
  WorkPtr start_on(int device, const Call& call) {
    if (!deviceless_.empty()) refuse(call.operation);
    auto timed = call;
    timed.options.timeout = call.options.timeout.value_or(options_.config.timeout);
    {
      const std::lock_guard lock(mutex_);
      if (!devices_) {
        expect_all_ranks(call.operation);
        if (auto failed = form(device, *timed.options.timeout)) return failed;
      }
    }
    return device_group_->start(timed);
  }

  // A collective breaks the group, as ranks that pass host memory wait for it.
  [[noreturn]] void refuse(const Operation& operation) {
    const auto reason = fmt::format("{} on memory of a device: {} keeps this group to memory of the host",
                                    describe(operation), deviceless_);
    if (!operation.point_to_point()) host_->abort(reason);
    throw Error(Errc::unsupported, reason);
  }
  static void expect_all_ranks(const Operation& operation) {
    if (!operation.point_to_point()) return;
    throw make_error(Errc::unsupported,
                     "{} on memory of a device: the ranks come together for such memory at the first collective on it, "
                     "which has to come before",
                     describe(operation));
  }

  // Null on success. The barrier names a rank that does not call this or calls something else, as any operation does; a
  // rank lost after it shows in the host group.
  WorkPtr form(int device, std::chrono::milliseconds timeout) {
    try {
      host_->barrier({.timeout = timeout, .blocking = true});
      form_watched(device, timeout);
      // Stopped at the last moment: the host group knows the reason.
      if (const auto cause = host_->failure()) return failed_work(*cause);
      devices_ = device_group_.get();
      return nullptr;
    } catch (const Error& error) {
      if (!host_->failure()) host_->abort(error.what());
      return failed_work(error.code() == Errc::aborted ? *host_->failure() : error);
    }
  }

  void form_watched(int device, std::chrono::milliseconds timeout) {
    const FormingWatch watching(*host_, forming_);
    auto options = options_;
    options.prefix += "device/";
    options.config.timeout = timeout;                          // this call's, which may differ between ranks;
    options.config.heartbeat = heartbeat_of(options_.config);  // the heartbeat, which would depend on it, may not
    options.stop = forming_.get_token();
    options.give_up = {};  // applied to the host group only
    device_group_ = make_nccl_group(options, device, "for device memory, which a call passes");
  }

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
    std::thread thread_;  // last: uses all the above
  };

  struct StopForming {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };

  const GroupOptions options_;
  std::string deviceless_;  // the first rank that keeps the group from device memory; set as the next is made
  const std::unique_ptr<ProcessGroup> host_;
  std::stop_source forming_;
  const std::stop_callback<StopForming> on_stop_{options_.stop, StopForming{forming_}};
  std::mutex mutex_;  // guards the forming
  std::unique_ptr<ProcessGroup> device_group_;
  std::atomic<ProcessGroup*> devices_ = nullptr;  // device_group_, once formed
};

}  // namespace

std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options) {
  if (nccl_available()) return std::make_unique<AutoGroup>(options);
  return make_host_group(options);
}

}  // namespace ddprun::comm
