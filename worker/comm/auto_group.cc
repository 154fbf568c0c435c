#include "ddprun/worker/comm/auto_group.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/comm/await_ranks.h"
#include "ddprun/worker/comm/gloo/gloo_group.h"
#include "ddprun/worker/comm/host_evidence.h"
#include "ddprun/worker/comm/self_group.h"
#include "ddprun/worker/comm/shm/shm_group.h"
#include "ddprun/worker/comm/transport_group.h"

namespace ddprun::comm {
namespace {

// Becomes the transport that fits, once the ranks have told each other where they run.
class AutoTransport : public Transport {
 public:
  explicit AutoTransport(const GroupOptions& options) : options_(options) {}

  std::string_view backend() const override { return chosen_->backend(); }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    const auto hosts =
        exchange(store, prefix + "runs_on/", options_.rank, options_.size, host_evidence(), interrupted_, deadline);
    choose(std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts.front(); }));
    chosen_->connect(store, prefix, deadline);
  }

  void carry_out(const Collective& collective) override { chosen_->carry_out(collective); }
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory) override {
    return chosen_->start(operation, memory);
  }

  void interrupt() noexcept override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (chosen_) chosen_->interrupt();
  }

 private:
  void choose(bool one_host) {
    const std::lock_guard lock(mutex_);
    if (interrupted_) throw Error(Errc::aborted, "the group was interrupted while it came together");
    chosen_ = one_host ? make_shm_transport(options_) : make_gloo_transport(options_);
    if (options_.rank > 0) return;
    log::info("back end {}: the {} ranks {}", chosen_->backend(), options_.size,
              one_host ? "run on one host and share its memory" : "do not all share one host's memory");
  }

  const GroupOptions options_;
  std::mutex mutex_;  // orders the choice and an interruption
  std::atomic<bool> interrupted_ = false;
  std::shared_ptr<Transport> chosen_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();
  return make_transport_group(std::make_shared<AutoTransport>(options), options);
}

}  // namespace ddprun::comm
