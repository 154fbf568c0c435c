#include "ddprun/worker/comm/forming/placed_transport.h"

#include <atomic>
#include <mutex>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/forming/await_ranks.h"

namespace ddprun::comm {
namespace {

class PlacedTransport : public Transport {
 public:
  PlacedTransport(const GroupOptions& options, ChooseTransport choose, std::string deviceless)
      : options_(options), choose_(std::move(choose)), deviceless_(std::move(deviceless)) {}

  std::string_view backend() const override { return chosen_->backend(); }

  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    auto own = own_place(options_);
    own.deviceless = deviceless_;
    RankPlaces places;
    for (const auto& text :
         exchange(store, prefix + "place/", options_.rank, options_.size, encode(own), interrupted_, deadline)) {
      places.push_back(decode_place(text));
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
  void carry_out(const Collective& collective) override { chosen_->carry_out(collective); }
  bool takes_every_call() const override { return chosen_->takes_every_call(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return chosen_->allocate(bytes); }
  bool runs_anywhere() const override { return chosen_->runs_anywhere(); }
  bool post(const Collective& collective) override { return chosen_->post(collective); }
  bool finish_posted(const Collective& collective, const Deadline& deadline) override {
    return chosen_->finish_posted(collective, deadline);
  }
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory) override {
    return chosen_->start(operation, memory);
  }
  std::optional<std::chrono::milliseconds> farewell() const override { return chosen_->farewell(); }

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
