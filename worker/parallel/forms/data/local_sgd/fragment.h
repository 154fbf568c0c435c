#pragma once

#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

// The use of an average (DiLoCo, Douillard et al. 2023): the difference between a fragment's parameters after the last
// exchange and their average is the gradient of an SGD with Nesterov momentum. Buffers take the average as it is.
struct OuterOptions {
  double lr = 1;
  double momentum = 0;
  // The share of a rank's own parameters that stays when they meet a result that began some steps ago: torchft's name.
  double fragment_update_alpha = 0;

  // Returns whether there is an outer step; otherwise the result is the average.
  bool updates() const { return lr != 1 || momentum != 0; }
};

// A part of a model that local SGD averages at once.
//
// Ownership: holds handles on the model's tensors; owns copies of them where averages are delayed, and the outer
// optimizer's state. Threads: one at a time. All ranks make the same calls. Errors: those of the group.
class Fragment {
 public:
  struct Member {
    std::string name;
    Tensor tensor;
    bool trained;  // a parameter, not a buffer
  };

  // delayed: end() is called steps after begin(), and the tensors change in between.
  Fragment(std::vector<Member> members, const OuterOptions& options, bool delayed);
  ~Fragment();  // waits for an average under way, which uses this memory
  Fragment(Fragment&&) noexcept = default;
  Fragment& operator=(Fragment&&) = delete;

  // Begins to average the present values of the tensors.
  void begin(ProcessGroup& group);
  // Waits for the average; the tensors become the result.
  void end();

  // Takes the present values of the tensors as the result of an exchange.
  void restart();

  // Adds the state that is not in the tensors themselves. Waits for an average under way, which is part of it.
  void add_state(const std::string& prefix, std::vector<HookState>& state);

 private:
  struct Part {
    Member member;
    Tensor average;              // the member itself, unless averages are delayed
    Tensor exchanged, momentum;  // those of the outer optimizer; undefined without one
  };
  void update(Part& part) const;

  OuterOptions options_;
  bool delayed_;
  std::vector<Part> parts_;
  WorkPtr averaging_;
};

}  // namespace ddprun
