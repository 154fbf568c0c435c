#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace ddprun {

// The conditions for a server of parameters to give them to a worker, and to apply a gradient, so that no gradient is
// computed from parameters that are more than `bound` updates old by the time it is applied: bounded staleness (Ho et
// al. 2013, counted in updates as by Zhang et al. 2016). A bound of 0 is one worker at a time; from workers - 1 on no
// worker waits for parameters.
//
// A worker that has parameters and has not brought its gradient yet is a reader. Readers can always bring their
// gradients in the order in which they became readers; the gate admits what leaves that possible. So readers that all
// compute cannot wait for each other.
//
// Pure: no I/O, no clock.
class StalenessGate {
 public:
  // REQUIRES: workers >= 1, bound >= 0
  StalenessGate(int workers, std::int64_t bound);

  // A worker asks for parameters. REQUIRES: it is no reader and has asked for nothing.
  void ask_to_read(int worker);
  // A reader brings its gradient. REQUIRES: it is a reader, and has not yet.
  void ask_to_apply(int worker);

  struct Admission {
    enum class Kind : std::uint8_t { read, apply } kind;
    int worker;
    std::int64_t staleness;  // updates since the worker read, for a gradient that is applied
    bool operator==(const Admission&) const = default;
  };
  // Returns what may be done now, gradients before reads and otherwise in the order asked; it counts as done. Call it
  // until it returns none.
  std::optional<Admission> admit();

  std::int64_t version() const { return version_; }  // updates applied
  // The number of gradients that were applied by their staleness in updates: bound + 1 numbers.
  const std::vector<std::int64_t>& histogram() const { return histogram_; }

 private:
  struct Reader {
    int worker;
    std::int64_t version;
  };
  bool may_apply(int worker) const;

  const std::int64_t bound_;
  std::int64_t version_ = 0;
  std::vector<Reader> readers_;  // in the order in which they became readers
  std::deque<int> waiting_to_read_, waiting_to_apply_;
  std::vector<std::int64_t> histogram_;
};

}  // namespace ddprun
