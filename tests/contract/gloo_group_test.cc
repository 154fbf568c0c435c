#include "worker/comm/backends/gloo/gloo_group.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <netinet/in.h>
#include <numeric>
#include <sched.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include "common/unique_fd.h"
#include "rendezvous/store/memory_store.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_gloo(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_gloo_group, size, timeout);
}

}  // namespace

TEST_CASE("a transport that Gloo cannot carry collectives over is refused by name") {
  ::setenv("GLOO_DEVICE_TRANSPORT", "IBVERBS", 1);
  const auto error =
      contract::error_of([] { comm::make_gloo_transport({.size = 2, .config = {.local_address = "127.0.0.1"}}); });
  ::unsetenv("GLOO_DEVICE_TRANSPORT");
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("GLOO_DEVICE_TRANSPORT=IBVERBS") != std::string::npos);
}

// A sender holds its socket's lock; a loop thread that preempted it would spin on that lock.
TEST_CASE("the thread that serves the sockets does not preempt running threads") {
  const auto policies = [] {
    std::map<int, int> found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      ++found[::sched_getscheduler(std::stoi(task.path().filename()))];
    return found;
  };
  auto before = policies();
  const auto transport = comm::make_gloo_transport({.size = 2, .config = {.local_address = "127.0.0.1"}});
  auto after = policies();
  CHECK(after[SCHED_BATCH] > before[SCHED_BATCH]);  // a sanitizer may have started a thread too
  CHECK(after[SCHED_OTHER] == before[SCHED_OTHER]);
}

namespace {

using GlooDevice = std::shared_ptr<::gloo::transport::tcp::Device>;

GlooDevice loopback_device() {
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  return std::dynamic_pointer_cast<::gloo::transport::tcp::Device>(::gloo::transport::tcp::CreateDevice(attributes));
}

}  // namespace

TEST_CASE("an exception of a handler does not end Gloo's event thread") {
  class Handler : public ::gloo::transport::tcp::Handler {
   public:
    void handleEvents(int) override {
      if (calls++ == 0) throw std::runtime_error("once");
      called_again.set_value();
      throw std::runtime_error("and again");
    }
    int calls = 0;
    std::promise<void> called_again;
  };
  Handler handler;  // outlives the thread
  auto called_again = handler.called_again.get_future();
  const auto device = loopback_device();
  const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
  device->registerDescriptor(event.get(), EPOLLIN, &handler);
  CHECK(called_again.wait_for(contract::test_timeout) == std::future_status::ready);
  eventfd_t one;
  ::eventfd_read(event.get(), &one);
}

namespace {

// Keeps the event thread of a device from its other events while it exists.
class OccupiedLoop {
 public:
  explicit OccupiedLoop(::gloo::transport::tcp::Device& device) : event_(::eventfd(1, EFD_CLOEXEC)) {
    device.registerDescriptor(event_.get(), EPOLLIN, &handler_);
    handler_.entered.get_future().wait();
  }
  OccupiedLoop(const OccupiedLoop&) = delete;
  OccupiedLoop& operator=(const OccupiedLoop&) = delete;
  ~OccupiedLoop() {
    eventfd_t one;
    ::eventfd_read(event_.get(), &one);
    handler_.release.set_value();
    handler_.left.get_future().wait();
  }

 private:
  struct Handler : ::gloo::transport::tcp::Handler {
    void handleEvents(int) override {
      entered.set_value();
      release.get_future().wait();
      left.set_value();
    }
    std::promise<void> entered, release, left;
  };

  Handler handler_;
  const UniqueFd event_;
};

struct IterationHandler : ::gloo::transport::tcp::Handler {
  void handleEvents(int) override {
    if (++calls == 2) twice.set_value();
  }
  int calls = 0;
  std::promise<void> twice;
};

// Returns once the event thread has handled all that was ready when the function was called: a descriptor that stays
// ready is handled once in each iteration. The handler outlives the device: ThreadSanitizer does not see how Gloo
// orders its last call before the return of unregisterDescriptor().
void await_iteration(::gloo::transport::tcp::Device& device, IterationHandler& handler) {
  const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
  device.registerDescriptor(event.get(), EPOLLIN, &handler);
  handler.twice.get_future().wait();
  device.unregisterDescriptor(event.get(), &handler);
}

void connect_and_reset(const sockaddr_storage& address) {
  const UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)) == 0);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace

// getpeername() fails then, and the exception leaves the pair with a descriptor that the event thread does not know.
TEST_CASE("a pair of Gloo whose peer reset the connection before it was accepted can be closed") {
  IterationHandler handler;
  const auto device = loopback_device();
  const auto context = device->createContext(0, 2);
  auto& pair = context->createPair(1);
  {
    const OccupiedLoop occupied(*device);
    connect_and_reset(::gloo::transport::tcp::Address(pair->address().bytes()).getSockaddr());
  }
  await_iteration(*device, handler);
  CHECK_NOTHROW(pair->close());
}

namespace {

void expect_one_result(contract::Groups& groups, std::size_t count) {
  INFO(groups.size() << " ranks, " << count << " elements");
  const auto value = [](std::size_t i, int rank) {
    return 1.0f / static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 1009);
  };
  std::vector<std::vector<float>> results(groups.size());
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    auto& values = results[static_cast<std::size_t>(group.rank())];
    for (std::size_t i = 0; i < count; ++i) values.push_back(value(i, group.rank()));
    group.allreduce(span_of(values), ReduceOp::sum)->wait();
  });
  for (const auto& result : results) CHECK(std::memcmp(result.data(), results[0].data(), count * 4) == 0);
  for (std::size_t i = 0; i < count; i += 101) {
    float sum = 0;
    for (const auto& group : groups) sum += value(i, group->rank());
    CHECK(results[0][i] == Approx(sum));
  }
}

}  // namespace

TEST_CASE("gloo groups give every rank the same bits, whichever algorithm a size selects") {
  for (const int ranks_per_host : {8, 2}) {
    const auto make = [ranks_per_host](GroupOptions options) {
      options.config.host = "host " + std::to_string(options.rank / ranks_per_host);
      return comm::make_gloo_group(options);
    };
    for (const int size : {2, 3, 4, 5}) {
      auto groups = contract::make_groups(make, size, contract::test_timeout);
      for (const std::size_t count : {3'000u, 12'000u, 30'001u, 80'003u, 300'007u, 700'001u})
        expect_one_result(groups, count);
    }
  }
}

TEST_CASE("a gloo group counts the bytes that it hands to the network") {
  constexpr std::size_t count = 300'000;
  auto groups = contract::make_groups(comm::make_gloo_group, 2, contract::test_timeout);
  std::vector<std::uint64_t> reduced(2), sent(2);
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    const auto r = static_cast<std::size_t>(group.rank());
    std::vector<float> values(count, 1);
    const auto before = group.bytes_sent();
    group.allreduce(span_of(values))->wait();
    reduced[r] = group.bytes_sent() - before;
    const auto work = r == 0 ? group.send(span_of(values), 1, 0) : group.recv(span_of(values), 0, 0);
    work->wait();
    sent[r] = group.bytes_sent() - before - reduced[r];
  });
  for (const auto bytes : reduced) {  // each rank half of the buffer to the other, twice, and the calls' comparison
    CHECK(bytes >= count * sizeof(float));
    CHECK(bytes < count * sizeof(float) + 1000);
  }
  CHECK(sent == std::vector<std::uint64_t>{count * sizeof(float), 0});
}

// The owner's writes after the abort stay and are not sent. It writes only at some places, so that Gloo, if it still
// accessed the memory, would have time to.
TEST_CASE("after an abort in the middle of a large message, its memory is no longer accessed") {
  constexpr std::size_t marks = 2'000, count = 4096 * marks;
  for (const auto delay : {0, 1, 2, 4, 8}) {
    auto groups = contract::make_groups(comm::make_gloo_group, 2, contract::test_timeout);
    std::vector<std::vector<float>> memory{std::vector<float>(count, 1), std::vector<float>(count, 1)};
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      auto& values = memory[static_cast<std::size_t>(group.rank())];
      const auto message = group.rank() == 0 ? group.send(span_of(values), 1, 0) : group.recv(span_of(values), 0, 0);
      const std::jthread aborting([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay));  // at an arbitrary point of the message
        if (group.rank() == 1) group.abort("enough");
      });
      try {
        message->wait();  // it may be complete before the abort
      } catch (const Error& error) {
        contract::expect(error.code() == (group.rank() == 1 ? Errc::aborted : Errc::peer_lost), error.what());
      }
      for (auto i = static_cast<std::size_t>(group.rank()); i < count; i += count / marks) values[i] = 2;
    });
    groups.clear();
    for (const auto& values : memory) CHECK(std::accumulate(values.begin(), values.end(), 0.0) == count + marks);
  }
}

TEST_CASE("checked gloo groups compare every call") {
  const auto make = [](GroupOptions options) {
    options.config.checked = true;
    options.config.heartbeat = std::chrono::hours(1);  // ranks do not compare their records
    return comm::make_gloo_group(options);
  };
  for (const int size : {2, 3}) {
    auto groups = contract::make_groups(make, size, contract::test_timeout);
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> values(10);
      group.allreduce(span_of(values), ReduceOp::sum)->wait();
      const auto error =
          contract::error_of([&] { group.broadcast(span_of(values), group.rank() == 0 ? 0 : 1)->wait(); });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part :
           {"rank 0", "broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"}) {
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    });
  }
}

namespace {

// No rank reaches a timeout; the last call of each is one that its peers cannot match.
void expect_disagreement(int size, const contract::RankBody& calls, std::vector<std::string> names) {
  auto groups = contract::make_groups(
      [](GroupOptions options) {
        options.config.checked = false;
        return comm::make_gloo_group(options);
      },
      size, std::chrono::hours(1));
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    const auto error = contract::error_of([&] { calls(group); });
    contract::expect(error.code() == Errc::mismatch, error.what());
    for (const auto& name : names) {
      contract::expect(std::string(error.what()).find(name) != std::string::npos, error.what());
    }
  });
}

void recv_without_send(ProcessGroup& group) {
  std::vector<float> values(1);
  group.recv(span_of(values), (group.rank() + 1) % group.size(), 0)->wait();
}

}  // namespace

TEST_CASE("gloo groups report two roots of one broadcast, without comparing calls") {
  for (const int size : {2, 3}) {
    expect_disagreement(size,
                        [](ProcessGroup& group) {
                          std::vector<float> values(10);
                          group.broadcast(span_of(values), group.rank() == 0 ? 0 : 1)->wait();
                          recv_without_send(group);
                        },
                        {"broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"});
  }
}

// The neighbours of the rank that differs have completed the operation and are in the next one.
TEST_CASE("gloo groups report an operation that differs after other ranks have completed it") {
  expect_disagreement(4,
                      [](ProcessGroup& group) {
                        std::vector<float> values(group.rank() == 2 ? 11 : 10);
                        group.broadcast(span_of(values), 0)->wait();
                        group.barrier()->wait();
                      },
                      {"broadcast of 10 float32", "rank 2", "broadcast of 11 float32"});
}

TEST_CASE("gloo groups report operations that differ and that were completed without communication") {
  expect_disagreement(2,
                      [](ProcessGroup& group) {
                        std::vector<float> values(group.rank() == 0 ? 0 : 10);
                        group.allreduce(span_of(values))->wait();
                        recv_without_send(group);
                      },
                      {"allreduce(sum) of 0 float32", "allreduce(sum) of 10 float32"});
  expect_disagreement(2,
                      [](ProcessGroup& group) {
                        std::vector<float> values(5);
                        const Counts all_mine = group.rank() == 0 ? Counts{5, 0} : Counts{0, 5};
                        group.scatterv(span_of(values), all_mine, span_of(values), group.rank())->wait();
                        recv_without_send(group);
                      },
                      {"scatterv of 5 float32 in all from rank 0", "scatterv of 5 float32 in all from rank 1"});
}

TEST_CASE("checked gloo groups compare the parts of all_to_allv") {
  const auto make = [](GroupOptions options) {
    options.config.checked = true;
    return comm::make_gloo_group(options);
  };
  auto groups = contract::make_groups(make, 2, contract::test_timeout);
  contract::run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<float> input(4), output(4);
    const Counts even = {2, 2}, less = group.rank() == 0 ? Counts{2, 1} : Counts{1, 2};
    const auto error = contract::error_of([&] {
      group.all_to_allv(span_of(input), even, {output.data(), 3, DType::float32}, less)->wait();
    });
    contract::expect(error.code() == Errc::mismatch, error.what());
    for (const auto* part : {"sends 2 elements to rank ", ", which expects 1"})
      contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  });
}

DDPRUN_GROUP_CONTRACT("gloo", make_gloo, {1, 2, 3, 4, 5, 8})

namespace {

// Both ranks of a mesh, each with a store of its own, between which the test copies the addresses.
struct TwoStores {
  TwoStores() {
    for (int rank : {0, 1})
      threads.emplace_back([this, rank] { errors[static_cast<std::size_t>(rank)] = connect(rank); });
  }
  ~TwoStores() {
    for (auto& thread : threads) thread.join();
  }
  std::string connect(int rank) try {
    const auto transport =
        comm::make_gloo_transport({.rank = rank, .size = 2, .config = {.local_address = "127.0.0.1"}});
    transport->connect(stores[static_cast<std::size_t>(rank)], "", Deadline::in(std::chrono::seconds(20)));
    return "connected";
  } catch (const Error& e) {
    return e.what();
  }
  // flipped are bits of the first byte.
  void carry(std::size_t from, const std::string& key, int flipped) {
    auto value = stores[from].get(key, Deadline::in(std::chrono::seconds(20)));
    value[0] = static_cast<char>(value[0] ^ flipped);
    stores[1 - from].set(key, value, Deadline::in(std::chrono::seconds(20)));
  }

  MemoryStore stores[2];
  std::string errors[2];
  std::vector<std::thread> threads;
};

}  // namespace

// The peer knows the address of a rank's port, as any process of the network can, and not the store.
TEST_CASE("a peer that has not read the store is found out before its connection is used") {
  TwoStores ranks;
  ranks.carry(0, "address/0/1", 1);
  ranks.carry(1, "address/1/0", 0);
  for (auto& thread : ranks.threads) thread.join();
  ranks.threads.clear();
  CHECK(ranks.errors[0].find("rank 1 is not that rank's") != std::string::npos);
  CHECK(ranks.errors[1] == "connected");
}

TEST_CASE("peers that have read the store are connected") {
  TwoStores ranks;
  ranks.carry(0, "address/0/1", 0);
  ranks.carry(1, "address/1/0", 0);
  for (auto& thread : ranks.threads) thread.join();
  ranks.threads.clear();
  CHECK(ranks.errors[0] == "connected");
  CHECK(ranks.errors[1] == "connected");
}
