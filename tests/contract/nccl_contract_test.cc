// The nccl back end, alone and in an auto group, over a fake of CUDA and NCCL whose ranks are threads.
#include <algorithm>
#include <cstdlib>
#include <cuda_runtime_api.h>

#include <fmt/core.h>

#include "ddprun/worker/comm/backends/nccl/nccl_group.h"
#include "ddprun/worker/comm/backends/staged/staged_group.h"
#include "ddprun/worker/comm/elastic_group.h"
#include "ddprun/worker/comm/registry/auto_group.h"
#include "ddprun/worker/comm/registry/host_group.h"
#include "ddprun/worker/comm/subgroups.h"
#include "tests/contract/group_values.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"
#include "tests/support/fake_nccl/fake_nccl.h"

using namespace ddprun;
using contract::error_of;
using contract::expect;
using contract::run_ranks;
using testing::fake_nccl::AllMemoryIsDevices;
namespace fake_nccl = ddprun::testing::fake_nccl;

namespace {

// Before any test: the back end opens the fake as its CUDA module.
const int module_chosen = ::setenv("DDPRUN_CUDA_MODULE", DDPRUN_FAKE_CUDA_MODULE, 1);

std::unique_ptr<ProcessGroup> make_one(const GroupOptions& options) {
  return comm::make_nccl_group(options);
}

contract::Groups make_nccl(int size, std::chrono::milliseconds timeout) {
  static const AllMemoryIsDevices all_memory;
  return contract::make_groups(make_one, size, timeout);
}

std::unique_ptr<ProcessGroup> make_one_auto(GroupOptions options) {
  options.config.device = options.rank;
  return comm::make_auto_group(options);
}

contract::Groups make_auto(int size, std::chrono::milliseconds timeout = contract::test_timeout) {
  return contract::make_groups(make_one_auto, size, timeout);
}

// Over shared memory, for memory that the fake takes for a device's.
contract::Groups make_staged(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(
      [](const GroupOptions& options) { return comm::make_staged_group(comm::make_host_group(options), 0); }, size,
      timeout);
}

// Device memory, allocated as a program does.
class DeviceValues {
 public:
  DeviceValues(std::size_t count, float value, std::int32_t device = host_memory) : count_(count), device_(device) {
    void* data = nullptr;
    cudaMalloc(&data, count * sizeof(float));
    data_ = static_cast<float*>(data);
    std::fill_n(data_, count, value);
  }
  ~DeviceValues() { cudaFree(data_); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  Span span() { return {data_, count_, DType::float32, device_}; }
  void expect_all(float value, const char* what) const {
    expect(std::all_of(data_, data_ + count_, [=](float each) { return each == value; }), what);
  }

 private:
  const std::size_t count_;
  const std::int32_t device_;  // as spans name it
  float* data_ = nullptr;
};

}  // namespace

TEST_CASE("nccl refuses operations that NCCL lacks and host memory, and the group stays usable") {
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    std::vector<std::int32_t> host(4);
    DeviceValues device(4, 1);
    const Span bits{device.span().data, 4, DType::int32};
    const auto code = [](auto call) { return error_of(call).code(); };
    for (const auto op : {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
      expect(code([&] { group.allreduce(bits, op); }) == Errc::unsupported, "bitwise reductions");
    }
    const auto from_any_source = error_of([&] { group.recv(device.span(), any_source, 0); });
    expect(from_any_source.code() == Errc::unsupported, from_any_source.what());
    expect(std::string(from_any_source.what()).find("name the source, or receive into memory of the host") !=
               std::string::npos,
           from_any_source.what());
    expect(code([&] { group.allreduce(span_of(host)); }) == Errc::usage, "host memory");
    expect(code([&] { group.allreduce_coalesced({bits, span_of(host)}); }) == Errc::usage, "a host span among several");
    group.allreduce(device.span())->wait();
    device.expect_all(2, "a later allreduce");
  });
}

TEST_CASE("nccl messages of different tags may overtake each other, those of one tag may not") {
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues a(3, 1), b(3, 2), c(3, 3);
    constexpr int many = 20;  // none is received before the last messages
    if (group.rank() == 0) {
      std::vector<WorkPtr> works;
      for (int i = 0; i < many; ++i) works.push_back(group.send(a.span(), 1, 0));
      works.push_back(group.send(b.span(), 1, 5));
      works.push_back(group.send(c.span(), 1, 5));
      for (const auto& work : works) work->wait();
      return;
    }
    group.recv(b.span(), 0, 5)->wait();
    group.recv(c.span(), 0, 5)->wait();
    for (int i = 0; i < many; ++i) {
      const auto work = group.recv(a.span(), 0, 0);
      work->wait();
      expect(work->source() == 0, "source");
    }
    a.expect_all(1, "tag 0");
    b.expect_all(2, "tag 5, first");
    c.expect_all(3, "tag 5, second");
  });
}

TEST_CASE("checked nccl groups compare every message before they receive it") {
  auto groups = contract::make_groups(
      [](GroupOptions options) {
        options.config.checked = true;
        options.config.heartbeat = std::chrono::hours(1);  // no rank publishes its operations
        return make_one(options);
      },
      2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues some(3, 1), more(4, 2), none(1, 3);
    const Span nothing{none.span().data, 0, DType::float32};
    for (const auto& span : {some.span(), nothing, more.span(), some.span()})
      (group.rank() == 0 ? group.send(span, 1, 2) : group.recv(span, 0, 2))->wait();
    const auto error = error_of([&] {
      (group.rank() == 0 ? group.send(some.span(), 1, 2) : group.recv(more.span(), 0, 2))->wait();
      group.barrier()->wait();
    });
    expect(error.code() == Errc::mismatch, error.what());
    expect(std::string(error.what()) ==
               "rank 0 calls send of 3 float32 to rank 1 with tag 2, rank 1 calls recv of 4 "
               "float32 from rank 0 with tag 2",
           error.what());
    more.expect_all(2, "the receive buffer is unchanged");
  });
}

TEST_CASE("memory that an nccl group allocates is registered until it is freed or the group has ended") {
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  const int before = fake_nccl::registrations();
  std::vector<RegisteredBuffer> buffers;
  for (auto& group : groups) buffers.push_back(group->allocate(400));
  CHECK(fake_nccl::registrations() - before == 2);
  for (const float value : buffers[0].as<float>()) REQUIRE(value == 0);
  buffers.pop_back();
  CHECK(fake_nccl::registrations() - before == 1);
  groups.clear();
  CHECK(fake_nccl::registrations() - before == 0);
}

TEST_CASE("an operation begins after the stream that the call names") {
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues values(1000, 0), ones(1000, 1);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    std::atomic<bool> begun = false;
    fake_nccl::hold_stream(stream, [&] { begun.wait(false); });
    cudaMemcpyAsync(values.span().data, ones.span().data, 4000, cudaMemcpyDeviceToDevice, stream);
    const auto work = group.allreduce(values.span(), {}, {.after = stream});
    begun = true;
    begun.notify_all();
    work->wait();
    values.expect_all(2, "the sum of what the stream wrote");
    cudaStreamDestroy(stream);
  });
}

TEST_CASE("an asynchronous error of NCCL breaks the group and is its cause") {
  DeviceValues memory[] = {{10, 1}, {10, 1}};  // outlives the groups: after a failure a device may still write to it
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  fake_nccl::break_communicators();
  run_ranks(groups, [&](ProcessGroup& group) {
    auto& values = memory[group.rank()];
    const auto error = error_of([&] { group.allreduce(values.span())->wait(); });
    expect(error.code() == Errc::connection_lost, error.what());
    expect(std::string(error.what()).find("a remote rank is gone") != std::string::npos, error.what());
  });
}

namespace {

using Members = std::vector<std::string>;

// Which communicators are created when the members of one generation become those of the next.
fake_nccl::CreatedCommunicators created_between(const Members& before, const Members& after, bool broken) {
  const auto server = std::make_shared<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  const GroupOptions base{.connect_store =
                              [server] {
                                return std::make_shared<TcpStore>(
                                    TcpStoreOptions{.host = "127.0.0.1", .port = server->port()},
                                    Deadline::in(contract::test_timeout));
                              },
                          .prefix = "job/",
                          .config = {.timeout = contract::test_timeout, .heartbeat = std::chrono::milliseconds(200)}};
  Members all = before;
  for (const auto& each : after)
    if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(each);
  std::vector<std::unique_ptr<ElasticGroup>> members;
  for (const auto& each : all) members.push_back(std::make_unique<ElasticGroup>("nccl", base, each));
  const auto reconfigure = [&](std::uint64_t generation, const Members& list) {
    std::vector<std::thread> threads;
    std::atomic<int> correct = 0;
    for (auto& each : members) {
      if (std::find(list.begin(), list.end(), each->self()) == list.end()) continue;
      threads.emplace_back([&, member = each.get()] {
        DeviceValues values(100, 1);
        member->reconfigure(generation, list).allreduce(values.span())->wait();
        values.expect_all(static_cast<float>(list.size()), "the sum");
        ++correct;
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE(correct == static_cast<int>(list.size()));
  };
  reconfigure(0, before);
  const auto first = fake_nccl::created_communicators();
  if (broken) {
    DeviceValues values(5, 1);
    const auto pending = members[0]->group().allreduce(values.span());
    for (auto& each : members) {
      if (std::find(before.begin(), before.end(), each->self()) != before.end()) each->abort("a peer was lost");
    }
    CHECK_THROWS(pending->wait());
  }
  reconfigure(1, after);
  const auto second = fake_nccl::created_communicators();
  return {second.initialized - first.initialized, second.shrunk - first.shrunk};
}

}  // namespace

TEST_CASE("a communicator is shrunk to its survivors if possible, and created anew if not") {
  for (const bool broken : {false, true}) {
    INFO((broken ? "broken" : "whole"));
    const auto shrunk = created_between({"a", "b", "c", "d"}, {"a", "c", "d"}, broken);
    CHECK(shrunk.initialized == 0);
    CHECK(shrunk.shrunk == 3);
    const auto newcomer = created_between({"a", "b", "c"}, {"a", "c", "d"}, broken);
    CHECK(newcomer.initialized == 3);
    CHECK(newcomer.shrunk == 0);
  }
  CHECK(created_between({"a", "b", "c"}, {"c", "a"}, false).initialized == 2);
  fake_nccl::pretend_version(22605);
  CHECK(created_between({"a", "b", "c"}, {"a", "c"}, false).initialized == 2);
  fake_nccl::pretend_version(22809);
}

TEST_CASE("auto uses nccl for device memory and the host's back end for the rest") {
  for (const int size : {1, 2, 3}) {
    const auto before = fake_nccl::created_communicators();
    auto groups = make_auto(size);
    run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> host(1000, 1);
      const auto pending = group.allreduce(span_of(host));
      DeviceValues device(50, 1, group.rank()), more(7, 2, group.rank());
      const auto first = group.allreduce(device.span()), second = group.allreduce_coalesced({more.span()});
      group.barrier()->wait();
      second->wait();
      first->wait();
      pending->wait();
      expect(host == std::vector<float>(1000, static_cast<float>(size)), "host memory");
      device.expect_all(static_cast<float>(size), "device memory");
      more.expect_all(static_cast<float>(2 * size), "several spans");
      if (size == 1) return;
      if (group.rank() == 0) group.send(more.span(), 1, 3)->wait();
      if (group.rank() == 1) group.recv(more.span(), 0, 3)->wait();
      group.barrier()->wait();
    });
    CHECK(fake_nccl::created_communicators().initialized - before.initialized == size + (size > 1 ? 2 : 0));
  }
}

TEST_CASE("an auto group with a rank without NCCL works on host memory, and names that rank for device memory") {
  auto groups = contract::make_groups(
      [](const GroupOptions& options) {
        std::optional<fake_nccl::FailsHere> no_device;
        if (options.rank == 1) no_device.emplace("cudaGetDeviceCount");
        return make_one_auto(options);
      },
      3, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> host(5, 1);
    group.allreduce(span_of(host))->wait();
    expect(host.back() == 3, "host memory");
  });
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues device(5, 1, group.rank());
    std::vector<float> host(5, 1);
    const bool deviceless = group.rank() == 1;
    const auto error = error_of([&] { group.allreduce(deviceless ? span_of(host) : device.span())->wait(); });
    for (const auto* part : {"on memory of a device: rank 1 (on host ", "where CUDA finds no GPU"})
      expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  });
}

TEST_CASE("ranks of an auto group that pass host and device memory to one collective time out") {
  auto groups = make_auto(2, std::chrono::seconds(1));
  run_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> host(5, 1);
    DeviceValues device(5, 1, group.rank());
    const auto error = error_of([&] { group.allreduce(group.rank() == 0 ? span_of(host) : device.span())->wait(); });
    expect(error.code() == Errc::timeout, error.what());
  });
}

TEST_CASE("an auto group refuses memory of another device than it was given") {
  auto groups = make_auto(2);
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues device(5, 1, 7), own(5, 1, group.rank());
    const auto error = error_of([&] { group.allreduce(device.span()); });
    expect(error.code() == Errc::unsupported, error.what());
    expect(std::string(error.what()).find("on memory of cuda:7") != std::string::npos, error.what());
    group.allreduce(own.span())->wait();
    own.expect_all(2, "the group stays usable");
  });
}

TEST_CASE("memory of a device is registered, and its subgroups take it, too") {
  auto groups = make_auto(3);
  run_ranks(groups, [](ProcessGroup& group) {
    const auto memory = group.allocate_on(group.rank(), 40);
    const Span span{memory.data(), 10, DType::float32, group.rank()};
    std::fill_n(static_cast<float*>(span.data), 10, 1.0f);
    const auto pair = subgroup(group, {0, 2});
    if (!pair) return;
    pair->allreduce(span)->wait();
    expect(memory.as<float>()[9] == 2, "the sum of two ranks");
  });
}

TEST_CASE("aborting an auto group ends the operations in progress of both its back ends") {
  auto groups = make_auto(2);
  std::vector<float> host(5, 1);
  DeviceValues device(5, 1, 0), other(5, 1, 1);
  const auto on_host = groups[0]->allreduce(span_of(host)), on_device = groups[0]->allreduce(device.span());
  groups[0]->abort("the test says so");
  for (const auto& work : {on_host, on_device}) CHECK(error_of([&] { work->wait(); }).code() == Errc::aborted);
  CHECK(error_of([&] { groups[0]->allreduce(device.span())->wait(); }).code() == Errc::aborted);
  CHECK(error_of([&] { groups[1]->allreduce(other.span())->wait(); }).code() == Errc::peer_lost);
}

namespace {

// The error of each rank while the groups are made.
std::vector<std::string> errors_while_forming(const std::function<std::unique_ptr<ProcessGroup>(GroupOptions)>& make) {
  std::vector<std::string> errors(3);
  contract::make_groups(
      [&](GroupOptions options) -> std::unique_ptr<ProcessGroup> {
        try {
          return make(options);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(options.rank)] = error.what();
          return nullptr;
        }
      },
      static_cast<int>(errors.size()), std::chrono::hours(1));
  return errors;
}

constexpr auto functions_that_may_fail = {"cudaGetDeviceCount",        "cudaSetDevice",          "cudaMalloc",
                                          "cudaStreamCreateWithFlags", "ncclCommInitRankConfig", "ncclGetUniqueId"};

}  // namespace

TEST_CASE("if a rank cannot join an nccl group, the others name it at once, with the reason") {
  for (const std::string function : functions_that_may_fail) {
    for (const int failing : {0, 1}) {
      if (failing == 1 && function == "ncclGetUniqueId") continue;  // only rank 0 calls it
      INFO(function << " fails at rank " << failing);
      const auto errors = errors_while_forming([&](const GroupOptions& options) {
        std::optional<fake_nccl::FailsHere> failure;
        if (options.rank == failing) failure.emplace(function);
        return make_one(options);
      });
      const auto own = errors[static_cast<std::size_t>(failing)];
      CHECK(own.find("an error of the fake") != std::string::npos);
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != failing) CHECK(errors[static_cast<std::size_t>(rank)].ends_with(": " + own));
        if (rank != failing)
          CHECK(errors[static_cast<std::size_t>(rank)].starts_with(fmt::format("rank {} (pid ", failing)));
      }
    }
  }
}

TEST_CASE("if a rank of an auto group cannot form its nccl group, the others name it at once") {
  for (const std::string function : functions_that_may_fail) {
    if (function == "cudaGetDeviceCount") continue;  // says that there is no device
    INFO(function << " fails at rank 0");
    const auto errors = errors_while_forming([&](const GroupOptions& options) {
      std::optional<fake_nccl::FailsHere> failure;
      if (options.rank == 0) failure.emplace(function);
      return make_one_auto(options);
    });
    for (const auto& each : errors) CHECK(each.find("an error of the fake") != std::string::npos);
    for (const int other : {1, 2}) CHECK(errors[static_cast<std::size_t>(other)].starts_with("rank 0 (pid "));
  }
}

TEST_CASE("a failure of an auto group also ends the formation of its nccl group") {
  const auto errors = errors_while_forming([&](const GroupOptions& options) -> std::unique_ptr<ProcessGroup> {
    if (options.rank == 0) return make_one_auto(options);
    comm::RankLocations locations;
    const auto host =
        comm::make_host_group(options, {.device = std::to_string(options.rank), .deviceless = ""}, &locations);
    if (options.rank == 1) host->abort("the test says so");
    return nullptr;
  });
  CHECK(errors[0].find("aborted the group: the test says so") != std::string::npos);
}

TEST_CASE("if NCCL refuses a device that two ranks share, the error names it") {
  const fake_nccl::RefusesSharedDevices refusing;
  const auto errors = errors_while_forming([](const GroupOptions& options) {
    cudaSetDevice(options.rank == 0 ? 4 : 5);
    return make_one(options);
  });
  for (const auto& each : errors)
    CHECK(each.find("ranks 1 and 2 have the same device, 0000:05:00.0 of host ") != std::string::npos);
  const auto apart = errors_while_forming([](const GroupOptions& options) {
    cudaSetDevice(options.rank);
    return make_one(options);
  });
  for (const auto& each : apart) CHECK(each.empty());
}

TEST_CASE("a rank that leaves an nccl group is noticed also without a freeze bound") {
  auto groups = contract::make_groups(
      [](GroupOptions options) {
        options.config.freeze_bound = std::chrono::milliseconds(0);
        return make_one(options);
      },
      3, std::chrono::hours(1));
  run_ranks(groups, [&](ProcessGroup& group) {
    if (group.rank() == 2) return groups[2].reset();
    DeviceValues device(5, 1);
    const auto error = error_of([&] { group.allreduce(device.span())->wait(); });
    expect(error.code() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find("rank 2 (pid ") != std::string::npos, error.what());
  });
}

TEST_CASE("an auto group stages the memory of a device that two ranks share") {
  const auto before = fake_nccl::created_communicators();
  auto groups = contract::make_groups(
      [](GroupOptions options) {
        options.config.device = options.rank / 2;
        return comm::make_auto_group(options);
      },
      3, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    for (const std::size_t count : {1, 5, 1'000'000}) {  // the last in chunks
      DeviceValues device(count, 1, group.rank() / 2), more(count, static_cast<float>(group.rank()), group.rank() / 2);
      const auto sum = group.allreduce(device.span());
      group.broadcast(more.span(), 2)->wait();
      sum->wait();
      device.expect_all(3, "the sum");
      more.expect_all(2, "the root's values");
    }
    DeviceValues device(5, 1, group.rank() / 2);
    const auto error = error_of([&] { group.send(device.span(), (group.rank() + 1) % 3, 0); });
    expect(error.code() == Errc::unsupported, error.what());
  });
  CHECK(fake_nccl::created_communicators().initialized == before.initialized);
}

TEST_CASE("what the device does not do breaks a staged group at all ranks") {
  auto groups = make_staged(2, contract::test_timeout);
  DeviceValues memory[] = {{10, 1, 0}, {10, 1, 0}};
  fake_nccl::break_copies();
  for (auto& group : groups) {
    auto& values = memory[group->rank()];
    const auto error = error_of([&] { group->allreduce(values.span())->wait(); });
    CHECK(std::string(error.what()).find("an error of the fake CUDA") != std::string::npos);
  }
}

DDPRUN_ANY_GROUP_CONTRACT("nccl", make_nccl, {1, 2, 3, 4, 5, 8})
DDPRUN_COLLECTIVE_CONTRACT("staged", make_staged, {1, 2, 3, 5})
