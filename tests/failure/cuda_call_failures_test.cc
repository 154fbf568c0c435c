// Every call of CUDA, cuBLASLt, cuDNN and NCCL that one rank makes until its first step is over fails once.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "common/atomic_file.h"
#include "tests/failure/cuda_job.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/emulator_control.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::failure;
namespace emulator = ddprun::test::emulator;

namespace {

[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(CudaJob::ranks);

constexpr int failing_rank = 1;
const std::string failing_device = "@" + std::to_string(failing_rank);

// The number of calls of these functions depends on how long the peer takes.
const std::set<std::string> polling{"cudaEventQuery", "cudaStreamQuery", "ncclCommGetAsyncError"};
// A step makes up to so many calls fewer of these: where operations that a stream is to follow (Work::order()) have
// ended already, where the polling thread finds their end only after the step, and where an upload has ended already,
// so that its page-locked memory and its event serve the next one.
const std::map<std::string, std::uint64_t> omissible_calls{
    {"cudaGetDevice", 2}, {"cudaStreamWaitEvent", 2}, {"cudaMemcpyAsync", 1}, {"cudaEventRecord", 1},
    {"cudaSetDevice", 4}, {"cudaEventDestroy", 2},    {"cudaHostAlloc", 2},   {"cudaEventCreateWithFlags", 2}};
// They release something, restore the thread's device or make what follows faster: a job goes on without.
const std::set<std::string> dispensable{"cudaSetDevice",    "cudaFreeAsync",     "cudaFree",        "cudaFreeHost",
                                        "cudaEventDestroy", "cudaStreamDestroy", "ncclCommRegister"};
// One more try follows, after memory that was kept for later is given back.
const std::set<std::string> tried_again{"cudaMallocAsync", "cudaMalloc", "ncclMemAlloc"};

// The number of calls of each function by the failing rank until its step ends.
using Counts = std::map<std::string, std::uint64_t>;

// The names of all functions that are called.
class Names {
 public:
  Names() {
    emulator::observe([](const char* function, int, void* self) { static_cast<Names*>(self)->add(function); }, this);
  }
  ~Names() { emulator::observe(nullptr, nullptr); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  Counts counts() const {
    const std::lock_guard lock(mutex_);
    Counts counts;
    for (const auto& name : names_)
      if (const auto calls = emulator::calls(name + failing_device); calls > 0) counts[name] = calls;
    return counts;
  }

 private:
  void add(const char* function) {
    const std::lock_guard lock(mutex_);
    names_.insert(function);
  }
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

Counts counts_of(CudaJob& job) {
  const Names names;
  Counts counts;
  emulator::fail("");
  job.run({.after_step = [&](int rank, ProcessGroup&) {
    if (rank == failing_rank) counts = names.counts();
  }});
  return counts;
}

using Live = std::map<std::string, std::uint64_t>;
Live live() {
  Live all;
  for (const std::string kind :
       {"device bytes", "pinned memory", "streams", "events", "communicators", "library objects"})
    all[kind] = emulator::live(kind);
  return all;
}

// The effect of one failure.
struct Injection {
  bool happened = false;
  std::vector<CudaJob::End> ends;
  std::set<std::string> grown;  // the resources of which there are more than before
};

Injection inject(CudaJob& job, const std::string& function, std::uint64_t n) {
  const Live before = live();
  Injection result;
  // A call that has not been made by the end of the step does not fail afterwards.
  const auto stop = [&] {
    result.happened |= emulator::has_failed();
    emulator::fail("");
  };
  emulator::fail(function + failing_device + ":" + std::to_string(n));
  result.ends = job.run({.before_leaving = [&](int rank, ProcessGroup&) {
    if (rank == failing_rank) stop();
  }});
  stop();
  for (const auto& [kind, count] : live())
    if (count > before.at(kind)) result.grown.insert(kind);
  return result;
}

// Returns the resources that a failure leaked. Pinned memory and events are kept for their next use, so there may be
// more of them once, but not each time.
std::set<std::string> leaks(CudaJob& job, const std::string& function, std::uint64_t n, std::set<std::string> grown) {
  for (int again = 0; again < 3 && !grown.empty(); ++again) {
    const Injection next = inject(job, function, n);
    std::erase_if(grown, [&](const auto& kind) { return !next.grown.contains(kind); });
  }
  return grown;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// Returns what is wrong with the ranks' reports; empty where nothing is.
std::string complaint(const CudaJob& job, const std::string& function, const Injection& injection) {
  const auto& failed = injection.ends[failing_rank];
  const auto& peer = injection.ends[1 - failing_rank];
  if (failed.failure.empty()) {
    if (!dispensable.contains(function) && !tried_again.contains(function)) return "it is not reported";
    return failed.state == job.after() && peer.state == job.after() ? "" : "it is not reported, and changes the result";
  }
  const bool names_function = contains(failed.failure, function) || contains(failed.failure, "out of memory") ||
                              (function == "cudaLaunchKernelExC" && contains(failed.failure, "the launch of a kernel"));
  if (!names_function) return "the error does not name the function";
  const std::string device = "cuda:" + std::to_string(failing_rank);
  if (!contains(failed.failure, " on " + device + ": ") && !contains(failed.failure, device + " is out of memory"))
    return "the error does not name the device";
  if (contains(failed.failure, "\n")) return "the error is longer than a line";
  if (peer.failure.empty() && peer.state == job.after()) return "";  // there was no further operation for both
  if (!contains(peer.failure, "rank " + std::to_string(failing_rank))) return "the peer does not name the rank";
  if (peer.code == Errc::timeout) return "the peer waited for its timeout";
  if (!peer.state.empty() && peer.state != job.before() && peer.state != job.after())
    return "the peer's state is mixed";
  return "";
}

struct Summary {
  std::uint64_t happened = 0, functions = 0;
};

bool may_be_left_out(const std::string& function, std::uint64_t n, std::uint64_t calls) {
  const auto found = omissible_calls.find(function);
  return found != omissible_calls.end() && n + found->second > calls;
}

// Fails each call of the functions in turn.
Summary fail_each_call(CudaJob& job, const std::function<bool(const std::string& function)>& is_selected) {
  Summary summary;
  for (const auto& [function, calls] : counts_of(job)) {
    if (!is_selected(function)) continue;
    const bool polls = polling.contains(function);
    ++summary.functions;
    for (std::uint64_t n = 1; n <= (polls ? 2 : calls); ++n) {
      const Injection injection = inject(job, function, n);
      if (!injection.happened) {
        INFO(function << ": call " << n << " of " << calls << " did not come");
        CHECK((polls || may_be_left_out(function, n, calls)));
        continue;
      }
      if (!polls) ++summary.happened;
      const std::string wrong = complaint(job, function, injection);
      const auto& [own, peer] = std::pair(injection.ends[failing_rank], injection.ends[1 - failing_rank]);
      INFO(function << " " << n << ": " << wrong << "\n  the rank: " << own.failure
                    << "\n  its peer: " << peer.failure);
      CHECK(wrong.empty());
      // A second try changes what is kept for later.
      if (!dispensable.contains(function) && !tried_again.contains(function))
        CHECK(leaks(job, function, n, injection.grown) == std::set<std::string>());
    }
  }
  const auto ends = job.run({});
  CHECK(ends[0].state == job.after());
  CHECK(ends[1].state == job.after());
  return summary;
}

const std::string cnn =
    "[model]\nname = cnn_bn\n[data]\nname = random\nlabels = true\noutputs = 3\nshape = 1x16x16\nsamples = 8\n"
    "test_samples = 4\nworkers = 0\n[train]\nbatch_size = 2\n[optim]\nname = adam\nclip_norm = 1\n";

const std::string gpt =
    "[model]\nname = gpt\npreset = nano\nlayers = 1\nheads = 2\nwidth = 16\ncontext = 8\ndropout = 0.1\n"
    "[train]\nbatch_size = 2\naccumulate = 2\n[parallel]\nhook = bf16\n[optim]\nname = sgd\n"
    "momentum = 0.9\n[data]\nname = text\ncontext = 8\nworkers = 0\n";

std::string text_for_gpt() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + ".\n";
  return text;
}

// A step calls these functions the most.
const std::set<std::string> frequent{"cudaSetDevice", "cudaMallocAsync", "cudaFreeAsync", "cudaLaunchKernelExC"};

// at_least is the number of calls that have to fail.
void check(const Summary& summary, std::uint64_t at_least) {
  std::cout << summary.happened << " calls of " << summary.functions << " functions failed in turn\n";
  CHECK(summary.happened > at_least);
}

}  // namespace

TEST_CASE(
    "each kernel of a CNN's step on devices that fails ends the job with one error, each allocation is tried again") {
  CudaJob job(cnn);
  check(fail_each_call(job, [](const std::string& function) { return frequent.contains(function); }), 300);
}

TEST_CASE("each other call of CUDA of a CNN's step that fails ends the job with one error") {
  CudaJob job(cnn);
  const auto of_cuda = [](const std::string& function) {
    return function.starts_with("cuda") && !frequent.contains(function);
  };
  check(fail_each_call(job, of_cuda), 50);
}

TEST_CASE("each call of cuBLASLt, cuDNN and NCCL of a CNN's step that fails ends the job with one error") {
  CudaJob job(cnn);
  check(fail_each_call(job, [](const std::string& function) { return !function.starts_with("cuda"); }), 30);
}

TEST_CASE("each kernel and product of a GPT's step in 16 bits that fails ends the job with one error") {
  const std::string precision = GENERATE("bf16", "fp16\nema = 0.9\n[optim]\nskip_outliers = 100");
  const testing::TempDir dir;
  write_file_atomically(dir / "input.txt", text_for_gpt());
  CudaJob job("[train]\nprecision = " + precision + "\n" + gpt + "dir = " + dir.path().string() + "\n");
  const auto computes = [](const std::string& function) {
    return function == "cudaLaunchKernelExC" || function.starts_with("cublasLt");
  };
  check(fail_each_call(job, computes), 100);
}
