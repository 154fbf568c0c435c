#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/thread_group.h"

namespace ddprun::testing {

// Runs body as the given number of ranks, which are threads of this process. Rethrows the first exception in the order
// of ranks. Catch2's assertions are allowed only on the main thread: a body stores its results, or throws.
inline void run_ranks(int size, const std::function<void(ProcessGroup&)>& body) {
  auto groups = make_thread_groups(size, std::chrono::seconds(30));
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&body, &failures, &groups, r] {
      try {
        body(*groups[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
      groups[r].reset();  // a rank that failed leaves, so that the others do not wait for it
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ddprun::testing
