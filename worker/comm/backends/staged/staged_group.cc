#include "worker/comm/backends/staged/staged_group.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "worker/comm/backends/staged/staged_messages.h"
#include "worker/comm/backends/staged/staged_pipeline.h"
#include "worker/comm/execution/yield.h"

namespace ddprun::comm {
namespace {

// Waits between attempts, the longer the more have failed: a rank may wait long for the others.
class Backoff {
 public:
  void reset() { tries_ = 0; }
  void wait() {
    constexpr int yields = 200;  // about the duration of a small copy
    constexpr std::chrono::microseconds shortest(50), step(5), longest(500);
    if (++tries_ <= yields && yield_processor()) return;
    std::this_thread::sleep_for(std::min(longest, shortest + step * std::max(tries_ - yields, 0)));
  }

 private:
  int tries_ = 0;
};

// The objects with which the thread of a group executes operations.
struct Execution {
  Execution(ProcessGroup& host, StagingPool& pool, const StagedOptions& options)
      : current(options.device),
        collectives(host, options.piece_bytes, options.device),
        messages(host, pool, options.device) {}
  bool idle() const { return collectives.idle() && messages.idle(); }
  bool advance() {
    const bool progress = collectives.advance();
    return messages.advance() || progress;
  }

  CurrentDevice current;
  StagedPipeline collectives;
  StagedMessages messages;
};

class StagedGroup final : public ProcessGroup {
 public:
  StagedGroup(std::unique_ptr<ProcessGroup> host, const StagedOptions& options)
      : host_(std::move(host)),
        options_(options),
        pool_(options.device),
        thread_(start_signal_free_thread([this] { work(); })) {}
  ~StagedGroup() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (unfinished_ > 0) host_->abort("the group was destroyed with operations unfinished");
    }
    changed_.notify_all();
    thread_.join();
  }
  StagedGroup(const StagedGroup&) = delete;
  StagedGroup& operator=(const StagedGroup&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return host_->backend(); }
  RegisteredBuffer allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  RegisteredBuffer allocate_on(std::int32_t device, std::size_t bytes) override {
    return device == options_.device ? zeroed_device_memory(device, bytes) : ProcessGroup::allocate_on(device, bytes);
  }
  bool accepts(std::int32_t device) const override { return device == options_.device || device == host_memory; }
  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }
  std::optional<Error> failure() const override { return host_->failure(); }
  void abort(const std::string& reason) override { host_->abort(reason); }

  WorkPtr start(const Call& call) override {
    const CurrentDevice current(options_.device);
    auto ready = std::make_unique<Event>(options_.device);
    ready->record(static_cast<cudaStream_t>(call.options.after));
    const auto work = std::make_shared<Completion>(call.operation);
    StagedTask task{call, std::move(ready), work, call.options.timeout.value_or(options_.timeout), &unfinished_};
    {
      const std::lock_guard lock(mutex_);
      if (call.operation.point_to_point()) {
        new_messages_.push_back(stage_message(*host_, pool_, std::move(task)));
      } else {
        new_collectives_.push_back(std::move(task));
      }
      ++unfinished_;
    }
    changed_.notify_all();
    return work;
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    return make_staged_group(host_->make_subgroup(ranks, name), options_);
  }

 private:
  struct NewTasks {
    std::vector<StagedTask> collectives;
    std::vector<StagedMessage> messages;
    bool empty() const { return collectives.empty() && messages.empty(); }
  };

  void work() {
    std::optional<Execution> execution;
    Backoff backoff;
    while (auto tasks = next_tasks(!execution || execution->idle())) {
      const bool progress = execute(*tasks, execution);
      progress ? backoff.reset() : backoff.wait();
    }
  }

  // Returns the tasks since the last call; waits for one where the thread is idle. Returns none when the group ends.
  std::optional<NewTasks> next_tasks(bool idle) {
    std::unique_lock lock(mutex_);
    const auto has_new = [this] { return !new_collectives_.empty() || !new_messages_.empty(); };
    if (idle) changed_.wait(lock, [&] { return closing_ || has_new(); });
    if (idle && !has_new()) return std::nullopt;
    return NewTasks{std::exchange(new_collectives_, {}), std::exchange(new_messages_, {})};
  }

  // A failure of this rank alone has to end the operations at the other ranks, too.
  bool execute(NewTasks& tasks, std::optional<Execution>& execution) try {
    if (!execution) execution.emplace(*host_, pool_, options_);
    for (auto& each : tasks.collectives) execution->collectives.add(std::move(each));
    for (auto& each : tasks.messages) execution->messages.add(std::move(each));
    if (const auto cause = host_->failure()) throw Error(*cause);
    return execution->advance() || !tasks.empty();
  } catch (const std::exception& error) {
    if (!host_->failure()) {
      host_->abort(error.what());
    } else if (execution) {
      execution->collectives.complete_finished();
      execution->messages.complete_finished();
    }
    const Error cause = *host_->failure();
    if (execution) {
      execution->collectives.cancel(cause);
      execution->messages.cancel(cause);
    }
    for (const auto& each : tasks.collectives)
      if (each.work) each.fail(cause);
    for (auto& each : tasks.messages) {
      if (!each.task.work) continue;
      await_end(each.in_group);
      each.task.fail(cause);
    }
    return true;
  }

  const std::unique_ptr<ProcessGroup> host_;
  const StagedOptions options_;
  StagingPool pool_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<StagedTask> new_collectives_;
  std::vector<StagedMessage> new_messages_;
  std::atomic<std::size_t> unfinished_ = 0;  // operations
  bool closing_ = false;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace

std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host, const StagedOptions& options) {
  api();  // throws where there is no module
  return std::make_unique<StagedGroup>(std::move(host), options);
}

}  // namespace ddprun::comm
