#pragma once

#include <cstdint>

namespace ddprun::comm {

// MPI's tags within a group's communicator.
struct MessageTags {
  static constexpr int call = 0;    // what the previous rank calls, one for each collective
  static constexpr int header = 1;  // of a send
  static constexpr int notice = 2;
  // The data of a pair's message with that number.
  static int data(std::uint64_t number, int upper_bound) {
    constexpr int first = 3;
    return first + static_cast<int>(number % static_cast<std::uint64_t>(upper_bound - first));
  }
};

}  // namespace ddprun::comm
