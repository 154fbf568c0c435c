#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/environment.h"
#include "common/unique_fd.h"
#include "launcher/hosts/remote_protocol.h"
#include "launcher/remote_launcher.h"
#include "rendezvous/trust/secret.h"

namespace ddprun {

// The command line of an agent on a host is this, followed by the id of the connection.
inline constexpr std::string_view remote_agent_option = "--remote_agent=";

// The agent's end of the protocol in remote_protocol.h. It reads standard input, so workers get /dev/null instead.
//
// Ownership: owns its copy of standard input and its thread. Threads: used on the main thread; forward_signals() starts
// a thread, which report_exit() and the destructor join. Errors: see each function.
class RemoteAgent : public StarterConnection {
 public:
  // Sends the message that ddprun runs. Throws Errc::io.
  RemoteAgent(std::string connection_id, const std::string& version, const Environment& own);
  ~RemoteAgent() override;
  RemoteAgent(const RemoteAgent&) = delete;
  RemoteAgent& operator=(const RemoteAgent&) = delete;

  // Waits for the launch request and changes into its directory. Throws Errc::connection_lost if the stream ends first,
  // Errc::protocol for anything else than a request, Errc::io if there is no such directory here.
  void receive_request();
  const LaunchRequest& request() const { return request_; }
  // This host's environment with the variables of the request.
  const Environment& environment() const { return environment_; }

  void apply_options(LaunchSettings& settings) const override;
  const SecretText* token() const override { return secret_ ? &*secret_ : nullptr; }
  void attach(AgentSpec& spec) const override;
  // The end of the starter's stream counts as SIGTERM.
  void forward_signals() override;
  // Sends the last message and ends the forwarding of signals.
  void report_exit(int exit_code);

 private:
  class SignalForwarder;
  void send(const std::string& text) const;

  std::string connection_id_;
  UniqueFd input_;
  LaunchRequest request_;
  std::optional<SecretText> secret_;
  Environment environment_;
  std::unique_ptr<SignalForwarder> signal_forwarder_;
};

}  // namespace ddprun
