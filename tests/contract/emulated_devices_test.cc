// Groups on memory of emulated devices, which the host cannot read and whose streams run in a random order.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/backends/nccl/device_memory.h"
#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/registry/host_group.h"
#include "tests/contract/device_groups.h"
#include "tests/contract/group_bits.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/emulator_control.h"

using namespace ddprun;
using contract::Bytes;

namespace {

constexpr int ranks = 3;
[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(ranks);

// Memory of a device, which work of a stream fills with the values.
class OnDevice {
 public:
  OnDevice(const Bytes& values, const comm::Stream& stream)
      : memory_(stream.device(), std::max<std::size_t>(values.size(), 1)) {
    comm::check_cuda(
        comm::api().cudaMemcpyAsync(memory_.get(), values.data(), values.size(), cudaMemcpyHostToDevice, stream.get()),
        "cudaMemcpyAsync", stream.device());
  }
  void* get() const { return memory_.get(); }
  Bytes read(std::size_t bytes, const comm::Stream& stream) const {
    Bytes values(bytes);
    comm::check_cuda(
        comm::api().cudaMemcpyAsync(values.data(), memory_.get(), bytes, cudaMemcpyDeviceToHost, stream.get()),
        "cudaMemcpyAsync", stream.device());
    stream.await_idle(Deadline::never());
    return values;
  }

 private:
  const comm::DeviceMemory memory_;
};

// Runs the operation on the thread's device, which has this number.
Bytes on_device(int device, const contract::StartOperation& start, DType dtype, const Bytes& input,
                const Bytes& output) {
  const comm::CurrentDevice current(device);
  const comm::Stream stream(device);
  const OnDevice in(input, stream), out(output, stream);
  comm::Event filled(device);
  filled.record(stream);
  comm::check_cuda(comm::api().cudaStreamWaitEvent(nullptr, filled.get(), 0), "cudaStreamWaitEvent", device);
  const auto count = [&](const Bytes& bytes) { return bytes.size() / size_of(dtype); };
  start({in.get(), count(input), dtype, device}, {out.get(), count(output), dtype, device})->wait();
  return out.read(output.size(), stream);
}

std::vector<contract::Results> expected() {
  auto groups = contract::make_groups([](const GroupOptions& options) { return comm::make_host_group(options); }, ranks,
                                      contract::test_timeout);
  return contract::results_of_ranks(groups, contract::on_host);
}

}  // namespace

TEST_CASE("memory of an emulated device is staged in pieces with the bits that memory of the host gets") {
  auto groups = contract::make_groups(
      [](const GroupOptions& options) {
        return comm::make_staged_group(
            comm::make_host_group(options),
            {.device = 1, .timeout = options.config.timeout, .piece_bytes = std::size_t{4} << 10});
      },
      ranks, contract::test_timeout);
  const auto found =
      contract::results_of_ranks(groups, [](const auto& start, DType dtype, const Bytes& input, const Bytes& output) {
        return on_device(1, start, dtype, input, output);
      });
  CHECK(contract::first_difference(expected(), found) == "");
}

namespace {

// Notes which threads query events, and how often.
class EventQueries {
 public:
  EventQueries() {
    test::emulator::observe(
        [](const char* function, int, void* self) { static_cast<EventQueries*>(self)->note(function); }, this);
  }
  ~EventQueries() { test::emulator::observe(nullptr, nullptr); }
  EventQueries(const EventQueries&) = delete;
  EventQueries& operator=(const EventQueries&) = delete;

  void await(int count) const {
    while (count_ < count) std::this_thread::yield();
  }
  std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  void note(std::string_view function) {
    if (function != "cudaEventQuery") return;
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    ++count_;
  }

  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
  std::atomic<int> count_ = 0;
};

}  // namespace

namespace {

Bytes bytes_of(float value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// The sum over ranks of values that one stream fills, read on another stream that is ordered only after it.
Bytes ordered_sum(ProcessGroup& group, float value) {
  const comm::CurrentDevice current(group.rank());
  const comm::Stream fills(group.rank()), reads(group.rank());
  const std::vector<float> values(1000, value);
  const auto bytes = values.size() * sizeof(float);
  const auto* const data = reinterpret_cast<const std::byte*>(values.data());
  const OnDevice memory(Bytes(data, data + bytes), fills);
  const auto work = group.allreduce({memory.get(), values.size(), DType::float32, group.rank()}, ReduceOp::sum,
                                    {.after = fills.get()});
  const OnDevice cancelled(bytes_of(0.0F), reads);
  work->order(reads.get(), static_cast<float*>(cancelled.get()));
  const auto sum = memory.read(bytes, reads);
  if (cancelled.read(sizeof(float), reads) != bytes_of(0.0F)) throw std::logic_error("it counts as cancelled");
  work->wait();
  return sum;
}

}  // namespace

TEST_CASE("a stream that is ordered behind an operation over NCCL sees its result") {
  constexpr int rounds = 20;
  auto groups = contract::make_groups(contract::make_nccl_rank, ranks, contract::test_timeout);
  const std::vector<float> sums(1000, 1.0F + 2.0F + 3.0F);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (const auto& group : groups)
    threads.emplace_back([&, own = group.get()] {
      for (int i = 0; i < rounds; ++i) {
        const auto sum = ordered_sum(*own, static_cast<float>(own->rank() + 1));
        if (std::memcmp(sum.data(), sums.data(), sum.size()) != 0) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("order() of an operation over NCCL returns while a peer is missing, and an abort lets the stream go on") {
  auto groups = contract::make_groups(contract::make_nccl_rank, 2, contract::test_timeout);
  const comm::CurrentDevice current(0);
  const comm::Stream stream(0);
  const OnDevice cancelled(bytes_of(0.0F), stream);
  const auto work = groups[0]->barrier();
  work->order(stream.get(), static_cast<float*>(cancelled.get()));  // would wait for ever
  CHECK(comm::api().cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  groups[0]->abort("the test aborts it");
  CHECK(stream.await_idle(Deadline::in(contract::test_timeout)));
  CHECK(cancelled.read(sizeof(float), stream) == bytes_of(1.0F));
  CHECK(contract::error_of([&] { work->wait(); }).code() == Errc::aborted);
  CHECK(contract::error_of([&] { groups[0]->barrier()->order(stream.get()); }).code() == Errc::aborted);
}

TEST_CASE("one thread of the process looks at the operations of all NCCL groups for which no other waits") {
  constexpr int jobs = 3;
  std::vector<contract::Groups> all;
  for (int i = 0; i < jobs; ++i)
    all.push_back(contract::make_groups(contract::make_nccl_rank, ranks, contract::test_timeout));
  std::vector<WorkPtr> works;
  std::set<std::thread::id> threads;
  {
    const EventQueries queries;
    for (const auto& groups : all)
      for (const auto& group : groups) works.push_back(group->barrier());
    queries.await(jobs * ranks);
    threads = queries.threads();
  }
  for (const auto& work : works) work->wait();
  CHECK(threads.size() == 1);
  CHECK_FALSE(threads.contains(std::this_thread::get_id()));
}
