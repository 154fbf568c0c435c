#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// The way of writing what a rank's peers will read from staging memory: into its caches, or past them to memory by
// non-temporal stores. Writing a line that a peer has cached costs an exchange between the cores, which takes 10 times
// as long where they share no third-level cache; a virtual machine does not know, and is moved. On two cores of a Zen 4
// VM an allreduce of 1 MiB through the caches took 45 us in some minutes and 840 in others, past them 90 to 125.
//
// So both ways are tried from time to time, and the quicker one is taken in between. Only an operation's number decides
// whether it is a trial, so that all ranks try the same way at the same time; what a rank takes otherwise is its own
// decision. Operations are told apart by kind, size and turn. Computes only: the caller measures. One thread.
class WritePolicy {
 public:
  enum class Way : std::uint8_t { into_caches, past_caches };
  using Duration = std::chrono::nanoseconds;
  struct Choice {
    Way way;
    bool measured;  // true if its duration is to be passed to end()
  };
  struct Kind {
    OpKind kind;
    std::size_t bytes;
    // The number of such operations after which the memory that one of them wrote is written again.
    std::uint32_t turn = 1;
  };

  // Chooses the way of the next operation of that kind; the choice is the same until it has ended.
  Choice choose(const Kind& kind) const;
  // Records the end of that operation. took: the time since all ranks had begun it.
  void end(const Kind& kind, Duration took);

  // A series consists of a turn, after which the memory looks as if there were no other way, and of the trials that are
  // measured. A series of one way and one of the other begin after first_series and second_series times as many
  // operations as a series has, and at every multiple of series_interval times as many.
  static constexpr std::uint32_t longest_turn = 128, measured_trials = 2;
  static constexpr std::uint32_t first_series = 1, second_series = 16, series_interval = 128;

 private:
  struct History {
    std::uint32_t operations = 0;
    std::array<Duration, 2> least{};  // by way, in the series under way
    std::optional<Way> decided;
  };
  struct Trial {
    Way way;
    std::uint32_t left;  // the trials of that way left in this series, with this one
  };
  // An operation's kind, the bit width of its size, and the length of a series.
  using Class = std::tuple<OpKind, int, std::uint32_t>;

  static std::uint32_t series_length(std::uint32_t turn);
  static std::optional<Trial> trial_at(std::uint32_t operation, std::uint32_t length);
  static Class class_of(const Kind& kind);

  std::map<Class, History> histories_;
  Way latest_ = Way::into_caches;  // last decided for any operation; serves those that have had no trial yet
};

}  // namespace ddprun::comm
