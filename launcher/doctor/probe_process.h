#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/unique_fd.h"
#include "launcher/workers/guardian.h"
#include "launcher/workers/worker_process.h"

namespace ddprun::doctor {

// A probe, or the ssh that runs one on another host, with pipes to its standard streams. The destructor ends it.
//
// Ownership: borrows the guardian. Threads: only the main thread.
class ProbeProcess {
 public:
  // Throws Errc::io when it cannot be started.
  ProbeProcess(const std::vector<std::string>& command, const Environment& environment, Guardian& guardian);
  ~ProbeProcess();
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  // Sends a line. It is lost if the probe has ended: then no message follows.
  void send(const std::string& line) const;
  // Returns its next message that has arrived, without the prefix. Other output of ssh or a shell is left out.
  std::optional<std::string> take_message();
  // Returns whether it has closed its standard output.
  bool ended() const { return !out_; }
  // The last line on standard error by the probe or ssh; "it ended without a word" if there is none.
  std::string last_words() const;

  // Reads from those of the probes that have no message yet until each has one, has ended, or the deadline has passed.
  static void wait_for_messages(const std::vector<ProbeProcess*>& probes, Deadline deadline);

 private:
  bool waits() const { return out_ && messages_.find('\n') == std::string::npos; }
  static void read(UniqueFd& from, std::string& into);
  void drop_other_lines();

  Guardian& guardian_;
  StartedProcess process_;
  UniqueFd in_;
  UniqueFd out_;
  UniqueFd err_;
  std::string messages_;  // not taken yet
  std::string errors_;
};

}  // namespace ddprun::doctor
