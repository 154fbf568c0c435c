#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/thread_group.h"

namespace ddprun::testing {

// Runs body once a rank, each on a thread of its own, and throws the error of the lowest failing rank.
inline void run_ranks(int size, const std::function<void(ProcessGroup&)>& body) {
  auto groups = testing::make_thread_groups(size, std::chrono::seconds(60));
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*groups[rank]);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ddprun::testing
