#include "ddprun/worker/comm/execution/placed_transport.h"

#include <atomic>
#include <mutex>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/bootstrap/await_ranks.h"

namespace ddprun::comm {
namespace {

class PlacedTransport : public Transport {
 public:
  PlacedTransport(const GroupOptions& options, ChooseTransport choose, std::string deviceless)
      : options_(options), choose_(std::move(choose)), deviceless_(std::move(deviceless)) {}

  std::string_view backend() const override { return chosen_->backend(); }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    auto own = own_location(options_);
    own.deviceless = deviceless_;
    RankLocations places;
    for (const auto& text :
         exchange(store, prefix + "place/", options_.rank, options_.size, encode(own), interrupted_, deadline)) {
      places.push_back(decode_location(text));
    }
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) throw Error(Errc::aborted, "the group was interrupted while it came together");
      chosen_ = choose_(places);
    }
    chosen_->connect(store, prefix, deadline);
  }

  int lanes() const override { return chosen_->lanes(); }
  bool announce(const Collective& collective) noexcept override { return chosen_->announce(collective); }
  void execute(const Collective& collective) override { chosen_->execute(collective); }
  bool accepts_raw_calls() const override { return chosen_->accepts_raw_calls(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return chosen_->allocate(bytes); }
  bool thread_agnostic() const override { return chosen_->thread_agnostic(); }
  bool post(const Collective& collective) override { return chosen_->post(collective); }
  bool finish_posted(const Collective& collective, const Deadline& deadline) override {
    return chosen_->finish_posted(collective, deadline);
  }
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory) override {
    return chosen_->start(operation, memory);
  }
  std::optional<std::chrono::milliseconds> linger_timeout() const override { return chosen_->linger_timeout(); }

  void interrupt() noexcept override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (chosen_) chosen_->interrupt();
  }

 private:
  const GroupOptions options_;
  const ChooseTransport choose_;
  const std::string deviceless_;
  std::mutex mutex_;  // orders the choice and an interruption
  std::atomic<bool> interrupted_ = false;
  std::shared_ptr<Transport> chosen_;
};

}  // namespace

std::shared_ptr<Transport> make_placed_transport(const GroupOptions& options, ChooseTransport choose,
                                                 std::string deviceless) {
  return std::make_shared<PlacedTransport>(options, std::move(choose), std::move(deviceless));
}

}  // namespace ddprun::comm
