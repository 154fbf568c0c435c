#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

// What the ddprun that starts agents on hosts does about their words and their ends: events in, actions out, no I/O.
//
// The first host's agent serves the rendezvous, at a free port and at the address at which ssh reached it: that host is
// one that all others can reach, since their workers have to, while the starting machine may be a laptop that nobody
// can dial. So it gets its order first, and the others get theirs when it has said where to meet.

struct FleetHost {
  std::string name;
  bool here = false;  // this machine, without ssh
};

struct FleetPolicy {
  std::string version;           // of this ddprun
  std::string endpoint;          // as the user gave it; empty: the first host's
  int min_nodes = 1;             // with fewer hosts left there is no job
  std::chrono::seconds grace{};  // that workers get to stop
};

// The ends of an ssh connection as a host sees it; empty without one.
struct RemoteAddresses {
  std::string client;
  std::string server;
};

struct SendOrder {
  std::size_t host;
  std::string endpoint;  // port 0: a free one
  bool serves = false;
  bool served_elsewhere = false;
};
struct SendSignal {
  std::size_t host;
  int signal_number;
};
struct CloseConnection {  // whatever the host's agent does
  std::size_t host;
};
struct SetTimer {  // instead of an earlier one
  std::chrono::seconds after;
};
struct SayError {
  std::string text;
};
struct FinishFleet {
  int exit_code;
};
using FleetAction = std::variant<SendOrder, SendSignal, CloseConnection, SetTimer, SayError, FinishFleet>;
using FleetActions = std::vector<FleetAction>;

class FleetState {
 public:
  FleetState(std::vector<FleetHost> hosts, FleetPolicy policy);

  FleetActions on_start();
  // The host's agent runs.
  FleetActions on_here(std::size_t host, const std::string& version, const RemoteAddresses& addresses);
  // The first host's agent serves the rendezvous.
  FleetActions on_meeting(const std::string& endpoint);
  // The agent's last word.
  FleetActions on_exit(std::size_t host, int exit_code);
  // The connection, or the agent where there is none, has ended. how: its last words, for people.
  FleetActions on_closed(std::size_t host, const std::string& how);
  // One that ends a job.
  FleetActions on_signal(int signal_number);
  FleetActions on_timer();

 private:
  enum class Phase {
    starting,  // not all hosts have said that they are there
    running,
    waning,    // too few are left for a job: the others hear of it by themselves
    stopping,  // they have been told
    closing,
  };
  struct Host {
    FleetHost who;
    bool said_here = false;
    bool ordered = false;
    bool closed = false;
    RemoteAddresses addresses;
    std::optional<int> exit_code;
  };

  std::string meeting_address() const;
  void order_those_here(FleetActions& actions);
  void send_signal(FleetActions& actions, int signal_number);
  void stop_all(FleetActions& actions, int signal_number);
  void wane(FleetActions& actions);
  void fail(FleetActions& actions, const std::string& text);
  void finish_if_all_closed(FleetActions& actions);
  int result() const;

  std::vector<Host> hosts_;
  FleetPolicy policy_;
  Phase phase_ = Phase::starting;
  std::string endpoint_;
  std::optional<int> signal_;
  bool failed_here_ = false;       // a host that could not be started or was lost
  bool success_ = false;           // an agent ended with 0, which it does by the job's verdict alone
  std::optional<int> first_code_;  // of an agent that ended by itself otherwise
};

}  // namespace ddprun
