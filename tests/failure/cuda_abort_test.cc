// A group that is aborted at each position of steps on CUDA devices: the weights and the optimizer's state are those
// before a step or those after it, never a mixture.
#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
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

// Functions that queue work.
constexpr std::array<std::string_view, 11> queueing = {"cudaLaunchKernelExC",
                                                       "cudaMemcpyAsync",
                                                       "cudaMemsetAsync",
                                                       "cudaEventRecord",
                                                       "cudaStreamWaitEvent",
                                                       "cublasLtMatmul",
                                                       "ncclGroupEnd",
                                                       "cudnnConvolutionForward",
                                                       "cudnnConvolutionBackwardData",
                                                       "cudaFreeAsync",
                                                       "cudnnConvolutionBackwardFilter"};

// Counts the operations that one thread queues in its steps, and aborts its group after a number of them.
class AbortAt {
 public:
  // position is the number of operations before the abort, -1 for no abort.
  explicit AbortAt(int position) : position_(position) {}
  ~AbortAt() {
    emulator::observe(nullptr, nullptr);
    if (aborting_.joinable()) aborting_.join();
  }
  AbortAt(const AbortAt&) = delete;
  AbortAt& operator=(const AbortAt&) = delete;

  // The calling thread's steps begin.
  void begin(ProcessGroup& group) {
    group_ = &group;
    thread_ = std::this_thread::get_id();
    emulator::observe([](const char* function, int, void* self) { static_cast<AbortAt*>(self)->note(function); }, this);
    abort_if_due();
  }
  // The group may be destroyed from now on.
  void end() {
    emulator::observe(nullptr, nullptr);
    if (aborting_.joinable()) aborting_.join();
  }
  int queued() const { return queued_; }

 private:
  void note(std::string_view function) {
    if (std::this_thread::get_id() != thread_ || std::ranges::count(queueing, function) == 0) return;
    ++queued_;
    abort_if_due();
  }
  // Aborts on another thread, since the rank's own may be within the group; it ends once the group has the cause.
  void abort_if_due() {
    if (queued_ != position_) return;
    position_ = -1;
    aborting_ = std::thread([this] { group_->abort("the test aborts it"); });
    while (!group_->failure()) std::this_thread::yield();
  }

  int position_;
  ProcessGroup* group_ = nullptr;
  std::thread::id thread_;
  int queued_ = 0;
  std::thread aborting_;
};

// Runs steps in which this rank aborts the group. Returns how many operations it queued.
int run_with_abort(CudaJob& job, int rank, int position, std::vector<CudaJob::End>& ends) {
  AbortAt abort(position);
  const auto of_rank = [&](auto act) {
    return [&abort, rank, act](int other, ProcessGroup& group) {
      if (other == rank) act(abort, group);
    };
  };
  ends = job.run({.before_step = of_rank([](AbortAt& one, ProcessGroup& group) { one.begin(group); }),
                  .before_leaving = of_rank([](AbortAt& one, ProcessGroup&) { one.end(); })});
  return abort.queued();
}

// Counts states by the number of steps that were made; the last count is that of mixtures.
class Tally {
 public:
  explicit Tally(const CudaJob& job) : job_(job), counts_(job.states().size() + 1) {}

  void add(const CudaJob::End& end) {
    const auto& states = job_.states();
    ++counts_[static_cast<std::size_t>(std::ranges::find(states, end.state) - states.begin())];
  }
  const std::vector<int>& counts() const { return counts_; }
  int mixed() const { return counts_.back(); }

 private:
  const CudaJob& job_;
  std::vector<int> counts_;
};

}  // namespace

// The host reads the first step's loss, and so waits for that step; it does not wait for those of the others.
TEST_CASE("an abort after any operation of three steps on devices leaves the state before a step or after it") {
  const std::string more =
      GENERATE("", "precision = fp16\nema = 0.9\n[optim]\nskip_outliers = 100\n", "[parallel]\nhook = bf16\n");
  CAPTURE(more);
  CudaJob job(
      "[model]\nname = mlp\nhidden = 24 16\n[data]\nname = random\nlabels = true\noutputs = 3\nshape = 6\nsamples = "
      "64\n"
      "test_samples = 4\nworkers = 0\n[dist]\nbucket_mb = 0.001\n[optim]\nname = adam\n"
      "[train]\nbatch_size = 4\n" +
          more,
      3);
  std::vector<CudaJob::End> ends;
  const int operations = run_with_abort(job, 0, -1, ends);
  REQUIRE(operations > 120);
  Tally own(job), peers(job);
  int aborts = 0;
  for (const std::uint64_t seed : {1, 2}) {
    emulator::seed(seed);
    for (int position = 0; position <= operations; ++position, ++aborts) {
      run_with_abort(job, 0, position, ends);
      own.add(ends[0]);
      peers.add(ends[1]);
      CAPTURE(seed, position, ends[0].failure, ends[1].failure);
      CHECK(own.mixed() + peers.mixed() == 0);
      // After the last collective no rank checks the group: such an abort comes before or after the last update.
      CHECK((!ends[0].failure.empty() || ends[0].state == job.states()[2] || ends[0].state == job.after()));
    }
  }
  std::cout << aborts << " aborts of runs of " << operations
            << " queued operations: how often 0, 1, 2 and 3 steps were made, and mixtures: "
            << Catch::Detail::stringify(own.counts()) << ", at the peer " << Catch::Detail::stringify(peers.counts())
            << "\n";
  CHECK(aborts == 2 * (operations + 1));
  for (std::size_t made = 0; made < 3; ++made) CHECK(own.counts()[made] > 0);
}
