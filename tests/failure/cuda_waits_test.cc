// Tests of when the host of a rank on a CUDA device waits for other ranks within a step.
#include <atomic>
#include <string_view>
#include <thread>

#include "tests/failure/cuda_job.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/emulator_control.h"

using namespace ddprun;
using namespace ddprun::failure;
namespace emulator = ddprun::test::emulator;

namespace {

[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(CudaJob::ranks);

// Records the calls of a thread between its first operation of NCCL and the next kernel. It ends with the first wait
// for an event by polling, too.
class CallsBehindCollective {
 public:
  ~CallsBehindCollective() { emulator::observe(nullptr, nullptr); }

  void begin() {
    thread_ = std::this_thread::get_id();
    emulator::observe(
        [](const char* function, int, void* self) { static_cast<CallsBehindCollective*>(self)->note(function); }, this);
  }
  void end() {
    emulator::observe(nullptr, nullptr);
    ended_ = true;
  }
  void await_end() const {
    while (!ended_) std::this_thread::yield();
  }
  int orders() const { return orders_; }
  int polls() const { return polls_; }

 private:
  void note(std::string_view function) {
    if (std::this_thread::get_id() != thread_ || ended_) return;
    if (function == "ncclGroupEnd") has_begun_ = true;
    if (!has_begun_) return;
    if (function == "cudaStreamWaitEvent") ++orders_;
    if (function == "cudaEventQuery") ++polls_;
    ended_ = function == "cudaLaunchKernelExC" || polls_ > 0;
  }

  std::thread::id thread_;
  bool has_begun_ = false;
  int orders_ = 0, polls_ = 0;
  std::atomic<bool> ended_ = false;
};

// Runs the job. From the hook `begin` on the watched rank's calls are recorded; the other one waits there until they
// are.
std::vector<CudaJob::End> run_watched(CudaJob& job, CallsBehindCollective& calls, int watched,
                                      CudaJob::Hooks::Hook CudaJob::Hooks::*begin) {
  CudaJob::Hooks hooks;
  hooks.*begin = [&](int rank, ProcessGroup&) { rank == watched ? calls.begin() : calls.await_end(); };
  hooks.before_leaving = [&](int rank, ProcessGroup&) {
    if (rank == watched) calls.end();
  };
  return job.run(hooks);
}

}  // namespace

TEST_CASE("a rank queues the forward pass behind the buffers of another rank without waiting for them") {
  constexpr int receiver = 1;
  CudaJob job(
      "[model]\nname = cnn_bn\n[data]\nname = random\nlabels = true\noutputs = 3\nshape = 1x16x16\nsamples = 8\n"
      "test_samples = 4\nworkers = 0\n[train]\nbatch_size = 2\n[optim]\nname = adam\n");
  CallsBehindCollective calls;
  // The sender begins its step once the receiver has queued its forward pass, or waits.
  const auto ends = run_watched(job, calls, receiver, &CudaJob::Hooks::before_step);
  REQUIRE(ends[receiver].failure == "");
  CHECK(ends[receiver].state == job.after());
  CHECK(calls.orders() == 1);
  CHECK(calls.polls() == 0);
}

TEST_CASE("a rank queues an update behind the gradients of all ranks without waiting for them") {
  constexpr int first = 1;
  const std::string settings =
      GENERATE("[optim]\nname = adam\nclip_norm = 1\n", "[optim]\nname = sgd\nmomentum = 0.9\n",
               "[optim]\nname = sgd\nmomentum = 0.9\ndampening = 0.1\n", "[optim]\nname = adam\nskip_outliers = 100\n",
               "[optim]\nname = adam\n[train]\nema = 0.9\n", "[optim]\nname = adam\n[train]\nprecision = fp16\n",
               "[optim]\nname = adam\n[parallel]\nhook = bf16\n");
  CAPTURE(settings);
  CudaJob job(
      "[model]\nname = mlp\nhidden = 24 16\n[data]\nname = random\nlabels = true\noutputs = 3\nshape = 6\n"
      "samples = 64\ntest_samples = 4\nworkers = 0\n[train]\nbatch_size = 4\n" +
          settings,
      2);
  CallsBehindCollective calls;
  // The other rank begins the last step, whose loss is not read, once this one has queued its update, or waits.
  const auto ends = run_watched(job, calls, first, &CudaJob::Hooks::before_last);
  REQUIRE(ends[first].failure == "");
  CHECK(ends[first].state == job.after());
  CHECK(calls.orders() == 1);
  CHECK(calls.polls() == 0);
}
