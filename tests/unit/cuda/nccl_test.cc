// The emulated NCCL, with threads and with processes as ranks.
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <nccl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/support/catch.h"

namespace {

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}
void expect(cudaError_t error) {
  expect(error == cudaSuccess, cudaGetErrorString(error));
}
void expect(ncclResult_t result) {
  expect(result == ncclSuccess || result == ncclInProgress, ncclGetErrorString(result));
}

ncclResult_t settled(ncclComm_t comm) {
  auto state = ncclInProgress;
  while (state == ncclInProgress) expect(ncclCommGetAsyncError(comm, &state));
  return state;
}

// One rank, on the device of its number unless another one is given.
class Rank {
 public:
  Rank(const ncclUniqueId& id, int size, int rank, int device) {
    expect(cudaSetDevice(device));
    expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    expect(ncclCommInitRankConfig(&comm_, size, id, rank, &config));
    state_ = settled(comm_);
  }
  ~Rank() {
    ncclCommAbort(comm_);
    cudaStreamDestroy(stream_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Calls the function on a copy of the values, and returns the values afterwards.
  std::vector<float> call(std::vector<float> values,
                          const std::function<ncclResult_t(float*, ncclComm_t, cudaStream_t)>& function) const {
    const std::size_t bytes = values.size() * sizeof(float);
    void* memory = nullptr;
    expect(ncclMemAlloc(&memory, bytes));
    expect(cudaMemcpyAsync(memory, values.data(), bytes, cudaMemcpyHostToDevice, stream_));
    expect(function(static_cast<float*>(memory), comm_, stream_));
    expect(settled(comm_));
    expect(cudaMemcpyAsync(values.data(), memory, bytes, cudaMemcpyDeviceToHost, stream_));
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) std::this_thread::yield();
    expect(ncclMemFree(memory));
    return values;
  }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  ncclResult_t state() const { return state_; }

 private:
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  ncclResult_t state_ = ncclSuccess;
};

ncclUniqueId new_id() {
  ncclUniqueId id;
  expect(ncclGetUniqueId(&id));
  return id;
}

// Runs body as each rank, on a thread of its own, and returns their errors.
std::vector<std::string> run(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

std::vector<float> filled(std::size_t count, double value) {
  return std::vector<float>(count, static_cast<float>(value));
}

// Makes every kind of call, in one chunk and in several.
void call_everything(const Rank& rank, int own, int size) {
  const auto all = static_cast<double>(size) * (size + 1) / 2;
  for (const std::size_t count : {std::size_t{5}, std::size_t{100'000}}) {
    const auto start = filled(count, own + 1);
    expect(rank.call(start,
                     [&](float* data, ncclComm_t comm, cudaStream_t stream) {
                       return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream);
                     }) == filled(count, all),
           "the sum");
    expect(rank.call(start,
                     [&](float* data, ncclComm_t comm, cudaStream_t stream) {
                       return ncclAllReduce(data, data, count, ncclFloat32, ncclMax, comm, stream);
                     }) == filled(count, size),
           "the largest");
    expect(rank.call(start,
                     [&](float* data, ncclComm_t comm, cudaStream_t stream) {
                       return ncclBroadcast(data, data, count, ncclFloat32, size - 1, comm, stream);
                     }) == filled(count, size),
           "the root's values");
    expect(rank.call(start,
                     [&](float* data, ncclComm_t comm, cudaStream_t stream) {
                       return ncclReduce(data, data, count, ncclFloat32, ncclSum, 0, comm, stream);
                     }) == filled(count, own == 0 ? all : own + 1),
           "the sum at the root");
    auto gathered = filled(count * static_cast<std::size_t>(size), own + 1);
    gathered = rank.call(gathered, [&](float* data, ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(data + static_cast<std::size_t>(own) * count, data, count, ncclFloat32, comm, stream);
    });
    for (int part = 0; part < size; ++part)
      expect(gathered[static_cast<std::size_t>(part) * count + count - 1] == static_cast<float>(part + 1), "a part");
    const auto scattered = rank.call(gathered, [&](float* data, ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(data, data + static_cast<std::size_t>(own) * count, count, ncclFloat32, ncclSum, comm,
                               stream);
    });
    expect(scattered[static_cast<std::size_t>(own) * count + count / 2] == static_cast<float>(size * (own + 1)),
           "the sum of a part");
    const int next = (own + 1) % size, before = (own + size - 1) % size;
    auto exchanged = filled(2 * count, own);
    exchanged = rank.call(exchanged, [&](float* data, ncclComm_t comm, cudaStream_t stream) {
      expect(ncclGroupStart());
      expect(ncclRecv(data + count, count, ncclFloat32, before, comm, stream));
      expect(ncclSend(data, count, ncclFloat32, next, comm, stream));
      return ncclGroupEnd();
    });
    expect(exchanged.back() == static_cast<float>(before), "the message");
  }
}

}  // namespace

TEST_CASE("threads are ranks of an emulated communicator") {
  for (const int size : {1, 2, 3}) {
    const auto id = new_id();
    const auto errors = run(size, [&](int own) { call_everything(Rank(id, size, own, own), own, size); });
    for (const auto& error : errors) CHECK(error == "");
  }
}

TEST_CASE("processes are ranks of an emulated communicator") {
  const auto id = new_id();
  constexpr int size = 3;
  std::vector<pid_t> children;
  for (int own = 1; own < size; ++own) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    bool correct = false;
    try {
      call_everything(Rank(id, size, own, own), own, size);
      correct = true;
    } catch (const std::exception&) {
    }
    ::_exit(correct ? 0 : 1);
  }
  call_everything(Rank(id, size, 0, 0), 0, size);
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("an emulated communicator refuses two ranks on one device") {
  const auto id = new_id();
  std::vector<ncclResult_t> states(2);
  const auto errors = run(2, [&](int own) { states[static_cast<std::size_t>(own)] = Rank(id, 2, own, 1).state(); });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(states == std::vector<ncclResult_t>(2, ncclInvalidUsage));
}

TEST_CASE("an emulated communicator that was revoked is shrunk to those that are left") {
  const auto id = new_id();
  constexpr int size = 3;
  const auto errors = run(size, [&](int own) {
    const Rank rank(id, size, own, own);
    if (own == 1) return;  // the others' allreduce never ends
    void* memory = nullptr;
    expect(ncclMemAlloc(&memory, 40));
    expect(ncclAllReduce(memory, memory, 10, ncclFloat32, ncclSum, rank.comm(), rank.stream()));
    expect(settled(rank.comm()));
    expect(cudaStreamQuery(rank.stream()) == cudaErrorNotReady, "it does not end");
    expect(ncclCommRevoke(rank.comm(), NCCL_REVOKE_DEFAULT));
    expect(settled(rank.comm()));
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    expect(ncclCommShrink(rank.comm(), excluded, 1, &child, &config, NCCL_SHRINK_DEFAULT));
    expect(settled(rank.comm()));
    const auto sum = rank.call(filled(4, own + 1), [&](float* data, ncclComm_t, cudaStream_t stream) {
      const auto result = ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, child, stream);
      expect(settled(child));
      return result;
    });
    expect(sum == filled(4, 4), "the sum of the two that are left");
    expect(ncclCommAbort(child));
    expect(ncclMemFree(memory));
  });
  for (const auto& error : errors) CHECK(error == "");
}
