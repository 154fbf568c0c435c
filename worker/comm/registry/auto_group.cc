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
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/backends/hierarchical/hierarchical_group.h"
#include "ddprun/worker/comm/backends/local/self_group.h"
#include "ddprun/worker/comm/backends/nccl/nccl_group.h"
#include "ddprun/worker/comm/execution/placed_transport.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {
namespace {

std::string reason(const HostMap& hosts) {
  if (hosts.hosts() == 1) return fmt::format("the {} ranks run on one host and share its memory", hosts.ranks());
  if (hosts.largest_host() == 1) return fmt::format("of the {} ranks no two share a host's memory", hosts.ranks());
  return fmt::format("the {} ranks run on {} hosts: shared memory within, Gloo between", hosts.ranks(), hosts.hosts());
}

// "rank 1 (on host b, whose build has no NCCL)": the first that keeps a group from memory of devices; empty: none.
std::string first_deviceless(const RankLocations& places) {
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (const auto& why = places[rank].deviceless; !why.empty()) return fmt::format("rank {} ({})", rank, why);
  }
  return "";
}

// deviceless: set before the group is there, if somebody wants to know.
std::unique_ptr<ProcessGroup> make_host_group(const GroupOptions& options,
                                              const std::shared_ptr<std::string>& deviceless = nullptr) {
  if (options.size == 1) return make_self_group();
  const auto choose = [options, deviceless](const RankLocations& places) {
    auto transport = make_hierarchical_transport(options, places);
    if (options.rank == 0) log::info("back end {}: {}", transport->backend(), reason(host_map(places)));
    if (deviceless) *deviceless = first_deviceless(places);
    return transport;
  };
  return make_transport_group(make_placed_transport(options, choose, why_no_nccl()), options,
                              {"auto", make_auto_group});
}

// Of the first memory that a call names, also where none of it is this rank's.
std::optional<int> device_named_in(const Call& call) {
  const auto of_any = [](const auto& spans) -> std::optional<int> {
    for (const auto& each : spans)
      if (each.data) return device_of(each.data);
    return std::nullopt;
  };
  if (call.operation.coalesced()) return of_any(call.layout->inputs);
  return device_of(call.input.data ? call.input.data : call.output.data);
}

// Calls on memory of the host go to one group; the first on memory of a device forms another one beside it, for those.
class AutoGroup : public ProcessGroup {
 public:
  explicit AutoGroup(const GroupOptions& options) : options_(options), host_(make_host_group(options, deviceless_)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return host_->backend(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return host_->allocate(bytes); }

  WorkPtr start(const Call& call) override {
    const auto device = device_named_in(call);
    if (const auto cause = failure()) return failed_work(*cause);
    return device ? start_on(*device, call) : host_->start(call);
  }

  // The first that either fails with ends both.
  std::optional<Error> failure() const override {
    if (auto cause = host_->failure()) return cause;
    const auto* const devices = devices_.load();
    return devices ? devices->failure() : std::nullopt;
  }

  void abort(const std::string& reason) override {
    host_->abort(reason);
    if (auto* const devices = devices_.load()) devices->abort(reason);
    forming_.request_stop();  // last: what is formed would give it as the reason
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
    if (!deviceless_->empty()) refuse(call.operation);
    auto timed = call;
    timed.options.timeout = call.options.timeout.value_or(options_.timeout);
    {
      const std::lock_guard lock(mutex_);
      if (!devices_) {
        expect_all_ranks(call.operation);
        if (auto failed = form(device, *timed.options.timeout)) return failed;
      }
    }
    return owner_->start(timed);
  }

  // A collective breaks the group: whoever has memory of the host alone waits for it.
  [[noreturn]] void refuse(const Operation& operation) {
    const auto reason = fmt::format("{} on memory of a device: {} keeps this group to memory of the host",
                                    describe(operation), *deviceless_);
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

  // None when it stands. The barrier tells who does not come, or calls something else, as it does of any operation; who
  // is lost behind it shows in the host's group.
  WorkPtr form(int device, std::chrono::milliseconds timeout) {
    try {
      host_->barrier({.timeout = timeout, .blocking = true});
      form_watched(device, timeout);
      // One that was told to stop as it stood: the reason is the host's group's.
      if (const auto cause = host_->failure()) return failed_work(*cause);
      devices_ = owner_.get();
      return nullptr;
    } catch (const Error& error) {
      if (!host_->failure()) host_->abort(error.what());
      return failed_work(error.code() == Errc::aborted ? *host_->failure() : error);
    }
  }

  void form_watched(int device, std::chrono::milliseconds timeout) {
    const WhileItForms watching(*host_, forming_);
    auto options = options_;
    options.prefix += "device/";
    options.timeout = timeout;                   // this call's: ranks need not agree on it,
    options.heartbeat = heartbeat_of(options_);  // as they have to on what would follow from it
    options.stop = forming_.get_token();
    options.give_up = {};  // that was of the host's group
    owner_ = make_nccl_group(options, device, "for memory of devices, of which a call has some");
  }

  // Ends the forming when the host's group fails.
  class WhileItForms {
   public:
    WhileItForms(const ProcessGroup& host, std::stop_source& forming)
        : thread_(start_signal_free_thread([this, &host, &forming] { watch(host, forming); })) {}
    ~WhileItForms() {
      {
        const std::lock_guard lock(mutex_);
        formed_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }
    WhileItForms(const WhileItForms&) = delete;
    WhileItForms& operator=(const WhileItForms&) = delete;

   private:
    void watch(const ProcessGroup& host, std::stop_source& forming) {
      constexpr std::chrono::milliseconds look(20);
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, look, [this] { return formed_; })) {
        if (host.failure()) forming.request_stop();
      }
    }

    std::mutex mutex_;  // guards formed_
    std::condition_variable changed_;
    bool formed_ = false;
    std::thread thread_;  // last: runs on all the above
  };

  struct StopForming {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };

  const GroupOptions options_;
  const std::shared_ptr<std::string> deviceless_ = std::make_shared<std::string>();  // who; set as the next is made
  const std::unique_ptr<ProcessGroup> host_;
  std::stop_source forming_;
  const std::stop_callback<StopForming> on_stop_{options_.stop, StopForming{forming_}};
  std::mutex mutex_;  // one forms it
  std::unique_ptr<ProcessGroup> owner_;
  std::atomic<ProcessGroup*> devices_ = nullptr;  // what that has, once it is formed
};

}  // namespace

std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options) {
  if (nccl_available()) return std::make_unique<AutoGroup>(options);
  return make_host_group(options);
}

}  // namespace ddprun::comm
