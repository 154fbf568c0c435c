// The nccl back end, by itself and in an auto group, over a fake of CUDA and NCCL whose ranks are threads.
#include <algorithm>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <thread>

#include <fmt/core.h>

#include "worker/comm/backends/nccl/nccl_group.h"
#include "worker/comm/backends/nccl/nccl_transport.h"
#include "worker/comm/elastic_group.h"
#include "worker/comm/execution/transport_group.h"
#include "worker/comm/registry/auto_group.h"
#include "worker/comm/registry/host_group.h"
#include "worker/comm/subgroups.h"
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

// This runs before any test: the back end opens the fake as its CUDA module.
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

  Span span() const { return {data_, count_, DType::float32, device_}; }
  void expect_all(float value, const char* what) const {
    expect(std::all_of(data_, data_ + count_, [=](float each) { return each == value; }), what);
  }

 private:
  const std::size_t count_;
  const std::int32_t device_;  // the device number in spans
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
  auto groups = contract::make_groups(make_one, 2, contract::test_timeout);
  fake_nccl::break_communicators();
  run_ranks(groups, [](ProcessGroup& group) {
    const DeviceValues values(10, 1);
    const auto error = error_of([&] { group.allreduce(values.span())->wait(); });
    expect(error.code() == Errc::connection_lost, error.what());
    expect(std::string(error.what()).find("a remote rank is gone") != std::string::npos, error.what());
  });
}

// No operation finishes, since rank 1 calls none.
TEST_CASE("the device no longer uses the memory of an operation once its error is reported") {
  auto groups = contract::make_groups(make_one, 2, std::chrono::hours(1));
  const auto message = [](ProcessGroup& group, const DeviceValues& values) {
    return group.rank() == 0 ? group.send(values.span(), 1, 0) : group.recv(values.span(), 0, 0);
  };
  run_ranks(groups, [&](ProcessGroup& group) {
    const DeviceValues values(10, 1);
    message(group, values)->wait();
  });
  fake_nccl::break_communicators();
  const DeviceValues values(10, 1);
  auto& group = *groups[0];
  const auto work = GENERATE(true, false) ? group.allreduce(values.span()) : message(group, values);
  CHECK_THROWS_AS(work->wait(), Error);
  CHECK_FALSE(fake_nccl::device_uses(values.span().data));
}

namespace {

using Members = std::vector<std::string>;

// The options of members that meet at one store.
GroupOptions elastic_options() {
  const auto server = std::make_shared<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  return {.connect_store =
              [server] {
                return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = server->port()},
                                                  Deadline::in(contract::test_timeout));
              },
          .prefix = "job/",
          .config = {.timeout = contract::test_timeout, .heartbeat = std::chrono::milliseconds(200)}};
}

// Returns which communicators are created when the members of one generation become those of the next.
fake_nccl::CreatedCommunicators created_between(const Members& before, const Members& after, bool broken) {
  const auto base = elastic_options();
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
  return {.initialized = second.initialized - first.initialized,
          .shrunk = second.shrunk - first.shrunk,
          .shrunk_by_abort = second.shrunk_by_abort - first.shrunk_by_abort};
}

}  // namespace

TEST_CASE("a communicator is shrunk to its survivors if possible, and created anew if not") {
  for (const bool broken : {false, true}) {
    INFO((broken ? "broken" : "whole"));
    const auto shrunk = created_between({"a", "b", "c", "d"}, {"a", "c", "d"}, broken);
    CHECK(shrunk.initialized == 0);
    CHECK(shrunk.shrunk == 3);
    CHECK(shrunk.shrunk_by_abort == (broken ? 3 : 0));
    const auto newcomer = created_between({"a", "b", "c"}, {"a", "c", "d"}, broken);
    CHECK(newcomer.initialized == 3);
    CHECK(newcomer.shrunk == 0);
  }
  CHECK(created_between({"a", "b", "c"}, {"c", "a"}, false).initialized == 2);
  fake_nccl::pretend_version(22605);
  CHECK(created_between({"a", "b", "c"}, {"a", "c"}, false).initialized == 2);
  fake_nccl::pretend_version(22809);
}

namespace {

// Four members run this; one of them leaves while the others wait for it in an allreduce. The clauses check each one.
class LosesOne {
 public:
  explicit LosesOne(const std::string& backend) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto options = elastic_options_;
      if (backend == "auto") options.config.device = devices_[i] = static_cast<int>(i);
      members_.push_back(std::make_unique<ElasticGroup>(backend, options, all[i]));
    }
  }
  // The errors of the members, by their first ranks.
  std::vector<std::string> run() {
    std::vector<std::string> errors(all.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          all[i] == "b" ? leave(i) : stay(i);
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    return errors;
  }

  const Members all{"a", "b", "c", "d"}, left{"a", "c", "d"};

 private:
  void leave(std::size_t i) {
    members_[i]->reconfigure(0, all);
    while (waiting_ < 3) std::this_thread::yield();
    members_[i].reset();
  }
  void stay(std::size_t i) {
    auto& own = *members_[i];
    DeviceValues lost(50, 1, devices_[i]), sum(50, 1, devices_[i]), copy(50, static_cast<float>(i), devices_[i]);
    const auto pending = own.reconfigure(0, all).allreduce(lost.span());
    ++waiting_;
    const auto error = error_of([&] { pending->wait(); });
    expect(error.code() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find("rank 1 (pid ") != std::string::npos, error.what());
    while (own.survivors() != left) std::this_thread::yield();
    auto& next = own.reconfigure(1, left);
    next.allreduce(sum.span())->wait();
    sum.expect_all(3, "the sum of those that are left");
    next.broadcast(copy.span(), 1)->wait();
    copy.expect_all(2, "the values of c, which is rank 1 now");
  }

  const GroupOptions elastic_options_ = elastic_options();
  std::vector<int> devices_ = std::vector<int>(4, host_memory);
  std::vector<std::unique_ptr<ElasticGroup>> members_;
  std::atomic<int> waiting_ = 0;
};

}  // namespace

TEST_CASE("ranks that lose one in an allreduce shrink their communicator, and their ranks close up") {
  for (const std::string backend : {"nccl", "auto"}) {
    INFO(backend);
    const auto before = fake_nccl::created_communicators();
    CHECK(LosesOne(backend).run() == std::vector<std::string>(4));
    const auto after = fake_nccl::created_communicators();
    CHECK(after.initialized - before.initialized == 4);
    CHECK(after.shrunk - before.shrunk == 3);
    CHECK(after.shrunk_by_abort - before.shrunk_by_abort == 3);
  }
}

TEST_CASE("a large communicator forms by several unique ids, of ranks that are evenly apart") {
  auto groups = contract::make_groups(
      [](const GroupOptions& options) {
        return comm::make_transport_group(comm::make_nccl_transport(
                                              options, [] { return 0; }, 2),
                                          options, {"nccl"});
      },
      5, contract::test_timeout);
  run_ranks(groups, [](ProcessGroup& group) {
    DeviceValues values(10, 1);
    group.allreduce(values.span())->wait();
    values.expect_all(5, "the sum");
  });
  CHECK(fake_nccl::created_communicators().most_ids == 3);
}

TEST_CASE("an nccl group counts what a ring sends to other hosts") {
  for (const int per_host : {2, 4}) {
    auto groups = contract::make_groups(
        [&](GroupOptions options) {
          options.config.host = "host " + std::to_string(options.rank / per_host);
          return make_one(options);
        },
        4, contract::test_timeout);
    run_ranks(groups, [](ProcessGroup& group) {
      DeviceValues values(100, 1);
      group.allreduce(values.span())->wait();
      if (group.rank() == 1) group.send(values.span(), 2, 0)->wait();
      if (group.rank() == 2) group.recv(values.span(), 1, 0)->wait();
    });
    const auto of_collective = per_host == 2 ? 2 * 400 * 3 / 4 / 2 : 0, of_message = per_host == 2 ? 400 : 0;
    for (const auto& group : groups)
      CHECK(group->bytes_sent() == static_cast<std::uint64_t>(of_collective + (group->rank() == 1 ? of_message : 0)));
  }
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

// Returns the error of each rank while the groups are made.
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
      CHECK_THAT(own,
                 Catch::Contains(function == "cudaMalloc"           ? "cuda:0 is out of memory"
                                 : function == "cudaGetDeviceCount" ? "CUDA finds no GPU"
                                                                    : function + " failed on cuda:0: an error of"));
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
    if (function == "cudaGetDeviceCount") continue;  // its failure means that there is no device
    INFO(function << " fails at rank 0");
    const auto errors = errors_while_forming([&](const GroupOptions& options) {
      std::optional<fake_nccl::FailsHere> failure;
      if (options.rank == 0) failure.emplace(function);
      return make_one_auto(options);
    });
    const bool exhausted = function == "cudaMalloc";
    for (const auto& each : errors)
      CHECK(each.find(exhausted ? "is out of memory" : "an error of the fake") != std::string::npos);
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
    for (const std::size_t count : {1, 5, 3'000'000}) {  // the last in pieces
      DeviceValues device(count, 1, group.rank() / 2), more(count, static_cast<float>(group.rank()), group.rank() / 2);
      const auto sum = group.allreduce(device.span());
      group.broadcast(more.span(), 2)->wait();
      sum->wait();
      device.expect_all(3, "the sum");
      more.expect_all(2, "the root's values");
    }
    DeviceValues device(5, 4, group.rank() / 2);
    if (group.rank() == 0) group.send(device.span(), 2, 0)->wait();
    if (group.rank() == 2) group.recv(device.span(), 0, 0)->wait();
    device.expect_all(4, "the message");
  });
  CHECK(fake_nccl::created_communicators().initialized == before.initialized);
}

DDPRUN_ANY_GROUP_CONTRACT("nccl", make_nccl, {1, 2, 3, 4, 5, 8})
