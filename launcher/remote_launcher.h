#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/environment.h"
#include "rendezvous/trust/secret.h"

namespace ddprun {

struct AgentSpec;
class LaunchSettings;

// The connection of an agent to the ddprun that started it on this host. The caller keeps it until the agent has ended.
// Used on the main thread.
class StarterConnection {
 public:
  virtual ~StarterConnection() = default;

  // Assigns the options that the starter chose for this host; they override all other origins.
  virtual void apply_options(LaunchSettings& settings) const = 0;
  // The token that the starter has sent. It lives as long as this object.
  virtual const SecretText* token() const = 0;
  // Makes the agent report its rendezvous server and the summary of a failure to the starter. REQUIRES: the
  // specification has its rendezvous.
  virtual void attach(AgentSpec& spec) const = 0;
  // Raises the starter's signals in this process from now on. It starts a thread: call it after the guardian was
  // forked.
  virtual void forward_signals() = 0;
};

// Runs ddprun with these arguments. connection is null unless another ddprun started this one. Returns the exit code.
using LaunchFunction = std::function<int(const std::vector<std::string>& arguments, const Environment& environment,
                                         StarterConnection* connection)>;

// An optional part of ddprun that starts the agents of a job on other hosts. main.cc has one row for each.
//
// One object serves one run of ddprun, on the main thread. Errors are thrown as Error.
class RemoteLauncher {
 public:
  virtual ~RemoteLauncher() = default;

  // Adds the part's options. This object must outlive the settings.
  virtual void add_options(LaunchSettings& settings) = 0;
  // Returns whether the options ask for this part.
  virtual bool requested() const = 0;
  // Starts the agents, waits for them and returns ddprun's exit code. arguments: as typed. program: this executable.
  virtual int run(const LaunchSettings& settings, const Environment& environment,
                  const std::vector<std::string>& arguments, const std::string& program) = 0;
  // Returns the exit code if the arguments are those with which this part starts an agent on a host, which it runs by
  // launch; otherwise nullopt.
  virtual std::optional<int> serve(const std::vector<std::string>& arguments, const Environment& environment,
                                   const LaunchFunction& launch) = 0;
};

// The implementation in launcher/hosts: --hosts and --hostfile.
std::unique_ptr<RemoteLauncher> make_hosts_launcher();

}  // namespace ddprun
