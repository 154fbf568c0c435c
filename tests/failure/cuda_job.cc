#include "tests/failure/cuda_job.h"

#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rendezvous/store/tcp_store.h"
#include "worker/comm/registry/auto_group.h"
#include "worker/cuda/cuda_module.h"
#include "worker/tasks/tasks.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::failure {
namespace {

void append(std::string& bytes, const Tensor& tensor) {
  const Tensor on_host = tensor.to(Device{}).contiguous();
  bytes.append(static_cast<const char*>(on_host.raw()), on_host.bytes());
}

std::string state_of(const trainer::TrainState& state) {
  std::string bytes;
  for (const auto& [name, parameter] : state.model->named_parameters()) append(bytes, parameter.value());
  for (const auto& [name, tensor] : state.optimizer->state()) append(bytes, tensor);
  if (state.ema)
    for (const auto& [name, tensor] : state.ema->averages()) append(bytes, tensor);
  return bytes;
}

Device device_of(int rank) {
  return {DeviceType::cuda, rank};
}

}  // namespace

CudaJob::CudaJob(const std::string& text, int steps)
    : job_(text),
      task_(tasks::make_task("auto", {.layout = job_.datasets().train->layout()})),
      store_(StoreServerOptions{.host = "127.0.0.1"}) {
  const auto make_state = [&] {
    return trainer::make_train_state(job_.config(), {}, job_.datasets().train->layout(), *task_, 0, {}, device_of(0));
  };
  states_.push_back(state_of(make_state()));
  for (int made = 1; made <= steps; ++made) {
    const auto ends = run({}, made);
    for (const End& end : ends)
      if (!end.failure.empty()) throw std::runtime_error(end.failure);
    if (ends[0].state != ends[1].state) throw std::runtime_error("the ranks' states differ");
    states_.push_back(ends[0].state);
  }
}

std::vector<CudaJob::End> CudaJob::run(const Hooks& hooks) {
  return run(hooks, static_cast<int>(states_.size()) - 1);
}

std::vector<CudaJob::End> CudaJob::run(const Hooks& hooks, int steps) {
  const std::string prefix = "group/" + std::to_string(runs_++) + "/";
  std::vector<End> ends(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { ends[static_cast<std::size_t>(rank)] = run_rank(rank, prefix, hooks, steps); });
  for (auto& thread : threads) thread.join();
  return ends;
}

// A failure of an operation has to be found without its timeout, which is far longer than the test.
std::unique_ptr<ProcessGroup> CudaJob::join(int rank, const std::string& prefix) const {
  const auto connect = [this] {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = store_.port()},
                                      Deadline::in(std::chrono::seconds(60)));
  };
  return comm::make_auto_group(
      {.rank = rank,
       .size = ranks,
       .connect_store = connect,
       .prefix = prefix,
       .config = {.timeout = std::chrono::minutes(10), .heartbeat = std::chrono::milliseconds(20), .device = rank}});
}

// The parts end in the order in which those of ddprun-worker do.
CudaJob::End CudaJob::run_rank(int rank, const std::string& prefix, const Hooks& hooks, int steps) {
  End end;
  std::optional<trainer::TrainState> state;
  try {
    CudaModule::get().symbol<int(int)>("cudaSetDevice")(rank);  // this thread's device from now on
    const auto group = join(rank, prefix);
    try {
      state =
          trainer::make_train_state(job_.config(), {}, job_.datasets().train->layout(), *task_, 0, {}, device_of(rank));
      trainer::TrainSession session({.config = job_.config(), .datasets = job_.datasets(), .task = *task_}, *state,
                                    *group);
      hooks.before_step(rank, *group);
      for (int i = 0; i < steps; ++i) {
        if (i + 1 == steps) hooks.before_last(rank, *group);
        session.step(false);
      }
      hooks.after_step(rank, *group);
    } catch (...) {
      hooks.before_leaving(rank, *group);
      throw;
    }
    hooks.before_leaving(rank, *group);
  } catch (const Error& error) {
    end.failure = error.what();
    end.code = error.code();
  } catch (const std::exception& error) {
    end.failure = error.what();
  }
  if (state) end.state = state_of(*state);
  return end;
}

}  // namespace ddprun::failure
