// Device tensors over groups of the host, with a fake of CUDA: its device memory is the host's, its streams are
// threads.
#include "worker/comm/backends/staged/staged_group.h"

#include <atomic>
#include <cstdlib>
#include <cuda_runtime_api.h>

#include "worker/comm/registry/host_group.h"
#include "tests/contract/group_bits.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"
#include "tests/support/fake_nccl/fake_nccl.h"

using namespace ddprun;
using contract::error_of;
using contract::expect;
using contract::run_ranks;
namespace fake_nccl = ddprun::testing::fake_nccl;

namespace {

// This runs before any test: the group opens the fake as its CUDA module.
const int module_chosen = ::setenv("DDPRUN_CUDA_MODULE", DDPRUN_FAKE_CUDA_MODULE, 1);

constexpr std::size_t small_pieces = 4096;
constexpr std::size_t larger_pieces = 65536;  // each piece takes long, as over a network

// Returns the ranks of each emulated host.
template <int per_host>
std::unique_ptr<ProcessGroup> make_host(GroupOptions options) {
  options.config.host = "host " + std::to_string(options.rank / per_host);
  return comm::make_host_group(options);
}

using MakeHost = std::unique_ptr<ProcessGroup> (*)(GroupOptions);

std::unique_ptr<ProcessGroup> stage(MakeHost make, const GroupOptions& options, std::size_t piece_bytes) {
  return comm::make_staged_group(make(options),
                                 {.device = 0, .timeout = options.config.timeout, .piece_bytes = piece_bytes});
}

template <int per_host, std::size_t piece_bytes>
contract::Groups make_staged(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(
      [](const GroupOptions& options) { return stage(make_host<per_host>, options, piece_bytes); }, size, timeout);
}
constexpr auto over_shm = make_staged<8, small_pieces>;
constexpr auto over_hierarchical = make_staged<2, larger_pieces>;
constexpr auto over_gloo = make_staged<1, larger_pieces>;

template <class Make>
std::vector<contract::Results> results_of_ranks(Make make, int size) {
  auto groups = contract::make_groups(make, size, contract::test_timeout);
  return contract::results_of_ranks(groups, contract::on_host);
}

}  // namespace

TEST_CASE("a staged group gives the bits that its host's group gives, in pieces or not") {
  struct Case {
    const char* name;
    MakeHost make;
    int ranks;
  };
  for (const auto& [name, make, ranks] :
       {Case{"shm", make_host<8>, 3}, Case{"gloo, two ranks", make_host<1>, 2},
        Case{"gloo, three ranks", make_host<1>, 3}, Case{"hierarchical, two hosts", make_host<2>, 4},
        Case{"hierarchical, three hosts", make_host<2>, 5}}) {
    INFO(name);
    const auto expected = results_of_ranks(make, ranks);
    const auto staged =
        results_of_ranks([&](const GroupOptions& options) { return stage(make, options, small_pieces); }, ranks);
    CHECK(contract::first_difference(expected, staged) == "");
  }
}

TEST_CASE("a staged collective begins after the stream that the call names, also where it only writes") {
  auto groups = over_shm(2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    const float own = group.rank() == 0 ? 5 : 0;
    std::vector<float> values(3000, 9), received(3000, 9), ones(3000, 1), owns(3000, own);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    std::atomic<bool> begun = false;
    fake_nccl::hold_stream(stream, [&] { begun.wait(false); });
    cudaMemcpyAsync(values.data(), ones.data(), 12'000, cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(received.data(), owns.data(), 12'000, cudaMemcpyDeviceToDevice, stream);
    const WorkPtr works[] = {group.allreduce(span_of(values), {}, {.after = stream}),
                             group.broadcast(span_of(received), 0, {.after = stream})};
    begun = true;
    begun.notify_all();
    for (const auto& work : works) work->wait();
    expect(values == std::vector<float>(3000, 2), "the sum of what the streams wrote");
    expect(received == std::vector<float>(3000, 5), "what the root's stream wrote");
    cudaStreamDestroy(stream);
  });
}

TEST_CASE("a message that only writes begins after the stream that the call names") {
  auto groups = over_shm(2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> values(10, 7), zeros(10, 0);
    if (group.rank() == 0) {
      group.send(span_of(values), 1, 0)->wait();
      return group.barrier()->wait();
    }
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    std::atomic<bool> begun = false;
    fake_nccl::hold_stream(stream, [&] { begun.wait(false); });
    cudaMemcpyAsync(values.data(), zeros.data(), 40, cudaMemcpyDeviceToDevice, stream);
    std::vector<float> other(10, 3);
    const auto held = group.recv(span_of(values), 0, 0, {.after = stream});
    group.barrier()->wait();
    expect(!held->done(), "it waits for the stream");
    begun = true;
    begun.notify_all();
    held->wait();
    expect(values == std::vector<float>(10, 7), "the message, over what the stream wrote");
    cudaStreamDestroy(stream);
  });
}

TEST_CASE("what the device does not do breaks a staged group at all ranks") {
  std::vector<float> memory[] = {std::vector<float>(10), std::vector<float>(10)};
  auto groups = over_shm(2, contract::test_timeout);
  fake_nccl::break_copies(1);
  for (auto& group : groups) {
    const auto error = error_of([&] { group->allreduce(span_of(memory[group->rank()]))->wait(); });
    CHECK(std::string(error.what()).find("an error of the fake CUDA") != std::string::npos);
  }
}

TEST_CASE("a device that does not copy within the timeout breaks a staged group at all ranks") {
  const int before = fake_nccl::pinned_pieces();
  std::atomic<bool> released = false;
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  fake_nccl::hold_stream(stream, [&] { released.wait(false); });
  std::vector<float> memory[] = {std::vector<float>(5000), std::vector<float>(5000)};
  auto groups = over_shm(2, contract::test_timeout);
  const auto held =
      groups[0]->allreduce(span_of(memory[0]), {}, {.timeout = std::chrono::milliseconds(50), .after = stream});
  const auto waiting = groups[1]->allreduce(span_of(memory[1]));
  const auto theirs = error_of([&] { waiting->wait(); });
  CHECK(theirs.code() == Errc::peer_lost);
  CHECK(std::string(theirs.what()).find("rank 0 (pid ") == 0);
  CHECK(std::string(theirs.what()).find("the device has not executed the copies") != std::string::npos);
  released = true;  // a failed operation does not end before its copies
  released.notify_all();
  const auto own = error_of([&] { held->wait(); });
  CHECK(own.code() == Errc::aborted);
  CHECK(std::string(own.what()).find("allreduce(sum) of 5000 float32: the device has not") == 0);
  groups.clear();
  CHECK(fake_nccl::pinned_pieces() == before);
  cudaStreamDestroy(stream);
}

TEST_CASE("ranks whose operations differ in the number of pieces learn of it") {
  std::vector<float> memory[] = {std::vector<float>(2048), std::vector<float>(1024), std::vector<float>(1024)};
  auto groups = over_shm(2, contract::test_timeout);
  const auto whole = groups[0]->allreduce(span_of(memory[0]));
  const WorkPtr halves[] = {groups[1]->allreduce(span_of(memory[1])), groups[1]->allreduce(span_of(memory[2]))};
  const auto error = error_of([&] { whole->wait(); });
  CHECK(error.code() == Errc::mismatch);
  CHECK(std::string(error.what()).find("allreduce(sum) of 1024 float32, a piece of 2048") != std::string::npos);
  CHECK_THROWS(halves[0]->wait());
}

DDPRUN_GROUP_CONTRACT("staged over shm:", over_shm, {1, 2, 3, 5})
DDPRUN_COLLECTIVE_CONTRACT("staged over hierarchical:", over_hierarchical, {4, 5})
DDPRUN_COLLECTIVE_CONTRACT("staged over gloo:", over_gloo, {3})
DDPRUN_GROUP_CLAUSE("staged over gloo:", over_gloo, send_and_recv_match_by_tag, {2, 3})
DDPRUN_GROUP_CLAUSE("staged over gloo:", over_gloo, operations_of_every_kind_are_in_flight, {3})
DDPRUN_GROUP_CLAUSE("staged over gloo:", over_gloo, an_abort_at_any_point_ends_all_ranks, {3})
DDPRUN_GROUP_CLAUSE("staged over hierarchical:", over_hierarchical, operations_of_every_kind_are_in_flight, {4})
DDPRUN_GROUP_CLAUSE("staged over hierarchical:", over_hierarchical, an_abort_at_any_point_ends_all_ranks, {4})
