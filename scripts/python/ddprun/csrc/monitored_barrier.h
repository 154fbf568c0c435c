#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "errors.h"

namespace ddprun_torch {

// c10d's monitored_barrier() as Gloo implements it, with its messages: ranks report their arrival to rank 0 and wait
// for its answer, which it gives once all have arrived. So rank 0 knows which ranks are missing at the timeout, and the
// others learn it from the end of the group.
class MonitoredBarrier {
 public:
  // limit_ms is the limit of the ranks that wait for rank 0, the group's.
  MonitoredBarrier(ddprun_group* group, int rank, int size, std::int64_t limit_ms)
      : group_(group), rank_(rank), size_(size), limit_ms_(limit_ms) {}

  void pass(std::chrono::milliseconds timeout, bool wait_all_ranks) const {
    if (rank_ == 0) {
      await_others(timeout, wait_all_ranks);
    } else {
      tell_rank_0();
    }
  }

 private:
  static constexpr std::int32_t tag = std::numeric_limits<std::int32_t>::max();  // programs take lower ones

  // A byte in transit. The library uses it until the operation has ended, so the destructor waits for that.
  class Message {
   public:
    Message() = default;
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
    ~Message() {
      if (!work_) return;
      wait(-1);
      ddprun_work_free(work_);
    }

    template <class Start>
    void start(Start start_operation) {
      ddprun_error error;
      start_operation(ddprun_span{byte_.data(), byte_.size(), DDPRUN_UINT8}, &work_, &error);
      check(error);
    }
    ddprun_error wait(std::int64_t timeout_ms) {
      ddprun_error error{};
      ddprun_work_wait(work_, timeout_ms, &error);
      return error;
    }

   private:
    std::array<std::uint8_t, 1> byte_{};
    ddprun_work* work_ = nullptr;
  };

  void send(Message& message, int to) const {
    message.start([&](ddprun_span span, ddprun_work** work, ddprun_error* error) {
      ddprun_send(group_, span, to, tag, limit_ms_, work, error);
    });
  }
  void receive(Message& message, int from) const {
    message.start([&](ddprun_span span, ddprun_work** work, ddprun_error* error) {
      ddprun_recv(group_, span, from, tag, limit_ms_, work, error);
    });
  }

  void tell_rank_0() const {
    try {
      Message arrival, answer;
      send(arrival, 0);
      receive(answer, 0);
      for (Message* const message : {&arrival, &answer}) check(message->wait(-1));
    } catch (const c10::Error& error) {
      C10_THROW_ERROR(DistBackendError,
                      "Rank " + std::to_string(rank_) +
                          " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                          "from rank 0: " +
                          error.what_without_backtrace());
    }
  }

  void await_others(std::chrono::milliseconds timeout, bool wait_all_ranks) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    if (timeout.count() == 0) fail("Rank 0 timed out in monitoredBarrier after 0 ms");
    std::vector<Message> arrivals(size_), answers(size_);
    for (int other = 1; other < size_; ++other) receive(arrivals[other], other);
    std::vector<int> missing;
    std::string cause;  // the text of an error other than the timeout, such as a lost rank
    for (int other = 1; other < size_; ++other) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      const auto error = arrivals[other].wait(std::max<std::int64_t>(0, left.count()));
      if (error.code == DDPRUN_OK) continue;
      missing.push_back(other);
      if (error.code != DDPRUN_TIMEOUT && cause.empty()) cause = std::string(": ") + error.message;
      if (!wait_all_ranks) break;
    }
    if (!missing.empty()) fail(missing_text(missing, timeout) + cause);
    for (int other = 1; other < size_; ++other) send(answers[other], other);
    for (int other = 1; other < size_; ++other) check(answers[other].wait(-1));
  }

  static std::string missing_text(const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
    std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    return "[Rank 0]: " + text + " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
  }

  // Ends the group: receives from the missing ranks would otherwise take messages that they send later.
  [[noreturn]] void fail(const std::string& text) const {
    ddprun_group_abort(group_, text.c_str());
    C10_THROW_ERROR(DistBackendError, text);
  }

  ddprun_group* group_;
  int rank_, size_;
  std::int64_t limit_ms_;
};

}  // namespace ddprun_torch
