#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/trainer/recovery/state_rest.h"
#include "worker/trainer/recovery/state_stream.h"
#include "worker/trainer/state/train_state.h"
#include "worker/trainer/state/update_listener.h"

namespace ddprun::trainer {

// Gives processes that are to join a run its state while it goes on. Each parameter is sent as it is after some step,
// with the optimizer's state of it; then follow its gradients in later steps, by which the receivers update it as the
// ranks of the run do, to the same bits. An update waits until the parameters whose turn it is are in a buffer, or are
// sent if they are large, and while more than so much memory holds gradients that wait to be sent.
//
// Ownership: owns the group. The state outlives this object, which is its listener. Threads: one at a time; it has a
// thread of its own that sends. Errors: none; receivers that get no end of the state copy it after they have joined.
class StateSender final : public UpdateListener {
 public:
  // The cost of it to the run.
  struct Figures {
    std::size_t bytes = 0;               // of the state
    std::int64_t updates = 0;            // whose gradients were sent
    std::chrono::nanoseconds waited{0};  // by updates
  };

  // Parameters are copied together up to so many bytes, which takes about a millisecond.
  static constexpr std::size_t usual_piece = std::size_t{8} << 20;

  // group: this process is rank 0, and all others receive the state. memory, piece: in bytes.
  StateSender(TrainState& state, std::unique_ptr<ProcessGroup> group, std::size_t memory,
              std::size_t piece = usual_piece);
  ~StateSender() override;
  StateSender(const StateSender&) = delete;
  StateSender& operator=(const StateSender&) = delete;

  void before_update() noexcept override;
  void after_update() noexcept override;

  // Ends the state by the rest of it, if the receivers had caught up with the run. Returns whether it is complete.
  // REQUIRES: no update is made meanwhile.
  bool finish(const StateRest& rest);
  Figures figures() const { return figures_; }

 private:
  struct Update {
    StreamHeader header;
    Tensor gradients;  // the beginning of the buffer
    Tensor buffer;
  };

  void run() noexcept;
  void take_memory();
  void send_until_the_end();
  bool has_work() const { return !updates_.empty() || sent_ < parameters_.size() || rest_; }
  void send_update(std::unique_lock<std::mutex>& lock);
  void send_parameters(std::unique_lock<std::mutex>& lock);
  void send_rest();
  void send(const StreamHeader& header, const std::vector<Tensor>& tensors);
  bool catches_up();
  std::size_t gradient_bytes() const;
  Update capture();

  TrainState& state_;
  const std::unique_ptr<ProcessGroup> group_;
  const std::size_t memory_, piece_;
  const std::vector<StreamedParameter> parameters_;
  std::vector<int> receivers_;
  Tensor piece_buffer_;                    // the sending thread's
  std::size_t all_gradient_bytes_ = 0;     // the most of an update; set before the first parameter is sent
  bool finished_ = false;                  // the training thread's, as is the next one
  Figures figures_;                        // the training thread's
  std::unique_lock<std::mutex> updating_;  // held during an update

  std::mutex mutex_;  // guards the members below, and the state against an update
  std::condition_variable changed_;
  std::size_t sent_ = 0;  // the parameters that are sent, or copied to be sent
  std::deque<Update> updates_;
  std::size_t update_bytes_ = 0;
  std::vector<Tensor> free_buffers_;  // each has space for all gradients
  std::optional<StateRest> rest_;
  bool caught_up_ = false;  // the receivers know that they can join
  bool stopping_ = false, failed_ = false, complete_ = false;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::trainer
