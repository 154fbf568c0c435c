#include "tests/contract/group_contract.h"

#include <exception>

namespace ddprun::contract {

void run_ranks(Groups& groups, const RankBody& body) {
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&body, &failures, &groups, r] {
      try {
        body(*groups[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ddprun::contract
