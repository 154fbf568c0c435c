#pragma once

#include <memory>
#include <string>

#include "ddprun/common/environment.h"
#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/cli/options.h"
#include "ddprun/launcher/hosts/remote_order.h"

namespace ddprun {

// A ddprun that another one has started on this host (--remote_agent=TOKEN): its order and signals come through
// standard input, its words go to standard output. Workers get /dev/null as standard input.
class RemoteAgent {
 public:
  // Takes standard input over and says that it is here. Throws Errc::io.
  RemoteAgent(std::string token, const std::string& version, const Environment& own);
  ~RemoteAgent();
  RemoteAgent(const RemoteAgent&) = delete;
  RemoteAgent& operator=(const RemoteAgent&) = delete;

  // Waits for the order and changes into its folder. Throws Errc::connection_lost when the stream ends first, Errc::io
  // when there is no such folder here.
  void receive_order();
  const RemoteOrder& order() const { return order_; }
  // This host's environment with the order's.
  const Environment& environment() const { return environment_; }
  // Assigns what the order adds to the command line.
  void apply_options(LaunchSettings& settings) const;
  // Lets the agent say where it serves the rendezvous, and leave the summary of a failure to the starter, which hears
  // the same one from all hosts. Call on a specification that has its rendezvous.
  void report_to_starter(AgentSpec& spec) const;
  // From now on signals of the starter are raised in this process, the end of its stream as SIGTERM. By a thread: call
  // behind the guardian's birth.
  void obey();
  // The last word; nothing is obeyed any more.
  void say_exit(int exit_code);

 private:
  class Obedience;
  void say(const std::string& text) const;

  std::string token_;
  UniqueFd input_;
  RemoteOrder order_;
  Environment environment_;
  std::unique_ptr<Obedience> obedience_;
};

}  // namespace ddprun
