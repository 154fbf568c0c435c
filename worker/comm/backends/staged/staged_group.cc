#include "ddprun/worker/comm/backends/staged/staged_group.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/staged/device_copies.h"
#include "ddprun/worker/comm/backends/staged/staged_call.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1024} * 1024;
constexpr std::size_t chunks_in_progress = 3;  // one is copied in, one transferred, one copied back

// Executes calls on memory of the current device, one after the other, over a group of the host.
class StagedExecution {
 public:
  explicit StagedExecution(ProcessGroup& host) : host_(host), copies_([&host] { return host.failure().has_value(); }) {}

  // ready: what the call has to wait for.
  void execute(const Call& call, const Event& ready) {
    copies_.follow(ready);
    if (is_elementwise(call) && call.input.bytes() > chunk_bytes) return execute_in_chunks(call);
    const auto staged = plan_staged_call(call, {host_.rank(), host_.size()}, staging_.at_least(staging_bytes(call)));
    std::byte* const memory = staging_.at_least(0);
    for (const auto& each : staged.read) copies_.to_host(memory + each.offset, each.device, each.bytes);
    copies_.await_all();
    host_.start(staged.call)->wait();
    for (const auto& each : staged.written) copies_.to_device(each.device, memory + each.offset, each.bytes);
    copies_.await_all();
  }

 private:
  // A chunk that is on its way.
  struct Chunk {
    std::unique_ptr<Event> copied;
    WorkPtr work;
  };

  void execute_in_chunks(const Call& call) {
    std::byte* const memory = staging_.at_least(chunks_in_progress * chunk_bytes);
    const std::size_t chunks = (call.input.bytes() + chunk_bytes - 1) / chunk_bytes;
    std::array<Chunk, chunks_in_progress> ring;
    const auto slot = [&](std::size_t i) { return memory + i % chunks_in_progress * chunk_bytes; };
    const auto copy_in = [&](std::size_t i) {
      if (reads(call))
        copies_.to_host(slot(i), static_cast<const std::byte*>(call.input.data) + i * chunk_bytes, bytes_of(call, i));
      ring[i % chunks_in_progress].copied = copies_.mark();
    };
    const auto finish = [&](std::size_t i) {
      ring[i % chunks_in_progress].work->wait();
      if (writes(call))
        copies_.to_device(static_cast<std::byte*>(call.output.data) + i * chunk_bytes, slot(i), bytes_of(call, i));
    };
    copy_in(0);
    std::size_t finished = 0;
    for (std::size_t i = 0; i < chunks; ++i) {
      if (i + 1 >= chunks_in_progress) finish(finished++);
      if (i + 1 < chunks) copy_in(i + 1);
      auto& chunk = ring[i % chunks_in_progress];
      copies_.await(*chunk.copied);
      chunk.work = host_.start(chunk_of(call, i, slot(i)));
    }
    while (finished < chunks) finish(finished++);
    copies_.await_all();
  }

  static std::size_t bytes_of(const Call& call, std::size_t chunk) {
    return std::min(chunk_bytes, call.input.bytes() - chunk * chunk_bytes);
  }
  static Call chunk_of(const Call& call, std::size_t chunk, std::byte* memory) {
    Call part = call;
    part.operation.count = bytes_of(call, chunk) / size_of(call.operation.dtype);
    part.options.blocking = false;
    const Span span{memory, part.operation.count, call.operation.dtype};
    part.input = span;
    part.output = call.output.count > 0 ? span : Span{};
    return part;
  }
  bool is_root(const Call& call) const { return call.operation.peer == host_.rank(); }
  bool reads(const Call& call) const { return call.operation.kind != OpKind::broadcast || is_root(call); }
  bool writes(const Call& call) const {
    return call.operation.kind == OpKind::allreduce || (call.operation.kind == OpKind::reduce) == is_root(call);
  }

  ProcessGroup& host_;
  DeviceCopies copies_;
  StagingMemory staging_;
};

class StagedGroup final : public ProcessGroup {
 public:
  StagedGroup(std::unique_ptr<ProcessGroup> host, int device)
      : host_(std::move(host)), device_(device), thread_(start_signal_free_thread([this] { work(); })) {}
  ~StagedGroup() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (!tasks_.empty()) host_->abort("the group was destroyed with operations unfinished");
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
    return device == device_ ? zeroed_device_memory(device, bytes) : ProcessGroup::allocate_on(device, bytes);
  }
  bool accepts(std::int32_t device) const override { return device == device_ || device == host_memory; }
  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }
  std::optional<Error> failure() const override { return host_->failure(); }
  void abort(const std::string& reason) override { host_->abort(reason); }

  WorkPtr start(const Call& call) override {
    if (call.operation.point_to_point())
      throw make_error(Errc::unsupported,
                       "{} on memory of cuda:{}: messages between devices need the nccl back end and a device for each "
                       "rank",
                       describe(call.operation), device_);
    const CurrentDevice current(device_);
    auto ready = std::make_unique<Event>();
    ready->record(static_cast<cudaStream_t>(call.options.after));
    const auto work = std::make_shared<Completion>(call.operation);
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back({call, std::move(ready), work});
    }
    changed_.notify_all();
    return work;
  }

  std::unique_ptr<ProcessGroup> make_subgroup(const std::vector<int>& ranks, const std::string& name) override {
    return make_staged_group(host_->make_subgroup(ranks, name), device_);
  }

 private:
  struct Task {
    Call call;
    std::unique_ptr<Event> ready;
    std::shared_ptr<Completion> work;
  };

  void work() {
    std::optional<CurrentDevice> current;
    std::optional<StagedExecution> execution;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      lock.unlock();
      execute(tasks_.front(), current, execution);
      lock.lock();
      tasks_.pop_front();
    }
  }

  // What fails here alone has to end the operation at the other ranks, too.
  void execute(const Task& task, std::optional<CurrentDevice>& current, std::optional<StagedExecution>& execution) {
    try {
      if (const auto cause = host_->failure()) throw Error(*cause);
      if (!execution) {
        current.emplace(device_);
        execution.emplace(*host_);
      }
      execution->execute(task.call, *task.ready);
      task.work->complete();
    } catch (const std::exception& error) {
      if (!host_->failure()) host_->abort(error.what());
      task.work->fail(*host_->failure());
    }
  }

  const std::unique_ptr<ProcessGroup> host_;
  const int device_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is being executed
  bool closing_ = false;
  std::thread thread_;  // last: uses all the above
};

}  // namespace

std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host, int device) {
  return std::make_unique<StagedGroup>(std::move(host), device);
}

}  // namespace ddprun::comm
