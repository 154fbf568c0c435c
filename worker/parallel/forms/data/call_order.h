#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace ddprun {

// The events of a pass, in order: the same in every pass of a model, so that the last pass says what comes next in this
// one, and a rank without samples can take part in a pass.
//
// A value. Threads: one at a time. Errors: none.
class CallOrder {
 public:
  enum class Kind { forward_begins, forward_ends, backward_begins, backward_ends, gradient_ready };
  struct Event {
    Kind kind;
    std::size_t index;  // that of a user of parameters, or of a parameter
    bool operator==(const Event&) const = default;
  };

  void begin_pass() { now_.clear(); }
  void end_pass() {
    last_ = now_;
    is_known_ = true;
  }
  void add(Event event) { now_.push_back(event); }
  // Returns the user of parameters that begins next, if this pass has been like the last one so far.
  std::optional<std::size_t> next_user() const;
  // Returns whether there was a pass.
  bool is_known() const { return is_known_; }
  const std::vector<Event>& last_pass() const { return last_; }

 private:
  std::vector<Event> now_, last_;
  bool is_known_ = false;
};

}  // namespace ddprun
