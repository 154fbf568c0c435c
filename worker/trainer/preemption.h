#pragma once

#include <string>
#include <vector>

namespace ddprun::trainer {

// Takes a signal as a notice that this process is to make room: it is remembered, and the training loop asks once a
// step. Whatever the signal did before, it does again when this object goes. One at a time in a process.
class PreemptionNotice {
 public:
  // name: "USR1", "USR2", "TERM", or "none", which takes no signal.
  explicit PreemptionNotice(const std::string& name);
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  bool given() const;

  static std::vector<std::string> names();

 private:
  int signal_number_ = 0;
};

}  // namespace ddprun::trainer
