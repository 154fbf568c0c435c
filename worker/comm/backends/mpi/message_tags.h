#pragma once

#include <cstdint>

namespace ddprun::comm {

// MPI's tags within a group's communicator.
struct MessageTags {
  static constexpr int call = 0;    // the previous rank's call, one message for each collective
  static constexpr int header = 1;  // the header of a send
  static constexpr int notice = 2;
  // The tag of the data of a pair's message with that number.
  static int data(std::uint64_t number, int upper_bound) {
    constexpr int first = 3;
    return first + static_cast<int>(number % static_cast<std::uint64_t>(upper_bound - first));
  }
};

}  // namespace ddprun::comm
