#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/error.h"
#include "rendezvous/progress/rank_record.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/registry/backends.h"
#include "tests/support/forked_ranks.h"

// Shared by the failure tests: ranks as processes, over every back end that connects processes.
namespace ddprun::failure {

using namespace std::chrono_literals;

inline const std::vector<std::string> backends = {"gloo", "shm", "hierarchical"};
inline constexpr auto test_timeout = 60s;  // limit of a test; groups have to be much faster
inline constexpr auto heartbeat = 100ms;
// A bound for silence that a running rank keeps beside many other processes: thirty heartbeats.
inline constexpr auto silence_bound = 3s;

inline std::shared_ptr<TcpStore> connect(std::uint16_t port) {
  return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = port}, Deadline::in(test_timeout));
}

// The timeout of operations is far longer than a test: failures have to be found without it.
inline GroupOptions options_for(const std::string& backend, int rank, int size, std::uint16_t port) {
  GroupOptions options{.rank = rank,
                       .size = size,
                       .connect_store = [port] { return connect(port); },
                       .config = {.timeout = 10min, .heartbeat = heartbeat}};
  // Simulates two hosts: pairs of ranks alternate between them.
  if (backend == "hierarchical") options.config.host = rank / 2 % 2 == 0 ? "one" : "other";
  return options;
}

inline std::string name_of(Errc code) {
  return code == Errc::peer_lost         ? "peer_lost"
         : code == Errc::timeout         ? "timeout"
         : code == Errc::connection_lost ? "connection_lost"
         : code == Errc::aborted         ? "aborted"
         : code == Errc::usage           ? "usage"
         : code == Errc::mismatch        ? "mismatch"
                                         : "other";
}

inline std::string code_and_text(const Error& error) {
  return name_of(error.code()) + ": " + error.what();
}

// Repeats an allreduce until it fails, and returns the failure. The test waits for the key "under way".
inline std::string reduce_until_failure(ProcessGroup& group, Store& store) {
  std::vector<float> values(20'000, 1.0f);
  try {
    for (int step = 1;; ++step) {
      group.allreduce(span_of(values), ReduceOp::average)->wait();
      if (step == 10 && group.rank() == 0) store.set("under way", "", Deadline::in(test_timeout));
    }
  } catch (const Error& error) {
    return code_and_text(error);
  }
}

inline void await(const testing::ForkedRanks& ranks, const std::string& key) {
  connect(ranks.store_port())->wait({key}, Deadline::in(test_timeout));
}

// Waits until a rank of the first group has sent so many more heartbeats: the time that has passed for the group,
// whatever the load of the machine.
inline void await_heartbeats(Store& store, int rank, std::uint64_t count) {
  const auto key = text_of(RankRecordKey{"group/0/", rank});
  const auto beat = [&] {
    const auto record = decode_rank_record(store.get(key, Deadline::in(test_timeout)));
    return record ? record->beat : 0;
  };
  const auto deadline = Deadline::in(test_timeout);
  for (const auto last = beat() + count; beat() < last; std::this_thread::sleep_for(heartbeat / 4))
    if (deadline.expired()) throw std::runtime_error("rank " + std::to_string(rank) + " sends no heartbeats");
}

// The name of a rank in error messages.
inline std::string named(const testing::ForkedRanks& ranks, int rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(ranks.pid(rank)) + " on host ";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ddprun::failure
