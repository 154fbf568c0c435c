#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

struct JobHost {
  std::string name;
  bool local = false;  // it is this machine, reached without ssh
};

struct HostsJobPolicy {
  std::string version;           // version of this ddprun
  std::string endpoint;          // as the user typed it; empty: the first host's agent runs the rendezvous server
  int min_nodes = 1;             // with fewer hosts left the job cannot continue
  std::chrono::seconds grace{};  // for workers to stop
};

// Both ends of an ssh connection as the host sees them; empty without ssh.
struct RemoteAddresses {
  std::string client;
  std::string server;
};

// The actions of HostsJobState, to be executed in order.
struct SendRequest {
  std::size_t host;
  std::string endpoint;  // port 0: a free one
  bool serves = false;   // this host's agent runs the rendezvous server
  bool served_elsewhere = false;
};
struct SendSignal {
  std::size_t host;
  int signal_number;
};
struct KillConnection {
  std::size_t host;
};
struct SetTimer {  // replaces an earlier one
  std::chrono::seconds after;
};
struct LogError {
  std::string text;
};
struct FinishHostsJob {
  int exit_code;
};
using HostsJobAction = std::variant<SendRequest, SendSignal, KillConnection, SetTimer, LogError, FinishHostsJob>;
using HostsJobActions = std::vector<HostsJobAction>;

// The state machine of the ddprun that starts agents on hosts: messages of agents, ends of connections and signals in,
// actions out, no I/O. Hosts are numbered in the order of the constructor's argument.
//
// A value. Threads: not thread-safe. Errors: none thrown; a failure of a host becomes an action. Units: seconds.
//
// The first host's agent runs the rendezvous server, on a free port and at the address at which ssh reached it: all
// other hosts can connect to that host, as their workers must, while the starting machine may accept no connections. So
// the first host gets its launch request first, and the others get theirs when it has reported the endpoint.
class HostsJobState {
 public:
  HostsJobState(std::vector<JobHost> hosts, HostsJobPolicy policy);

  // Call once, first.
  HostsJobActions on_start();
  // The host's agent runs.
  HostsJobActions on_started(std::size_t host, const std::string& version, const RemoteAddresses& addresses);
  // The first host's agent runs the rendezvous server.
  HostsJobActions on_rendezvous(const std::string& endpoint);
  // The agent is about to exit with this code.
  HostsJobActions on_exit_code(std::size_t host, int exit_code);
  // The connection, or the agent itself if there is none, has ended. The user is shown the reason.
  HostsJobActions on_closed(std::size_t host, const std::string& reason);
  // A signal that ends the job.
  HostsJobActions on_signal(int signal_number);
  // The time of the latest SetTimer has passed.
  HostsJobActions on_timer();

 private:
  enum class Phase {
    starting,  // some host has not got its launch request
    running,
    draining,  // too few hosts are left: the other agents are expected to end by themselves
    stopping,  // the agents were asked to stop
    closing,   // the connections are killed
  };
  struct Host {
    JobHost who;
    bool started = false;
    bool requested = false;
    bool closed = false;
    RemoteAddresses addresses;
    std::optional<int> exit_code;
  };

  std::string rendezvous_address() const;
  void request_launches(HostsJobActions& actions);
  void send_signal(HostsJobActions& actions, int signal_number);
  void stop_all(HostsJobActions& actions, int signal_number);
  void drain(HostsJobActions& actions);
  void fail(HostsJobActions& actions, const std::string& text);
  void finish_if_all_closed(HostsJobActions& actions);
  int result() const;

  std::vector<Host> hosts_;
  HostsJobPolicy policy_;
  Phase phase_ = Phase::starting;
  std::string endpoint_;
  std::optional<int> signal_;
  bool success_ = false;           // an agent ended with 0, which it does only if the whole job succeeded
  std::optional<int> first_code_;  // that of the first agent that ended by itself with another code
};

}  // namespace ddprun
