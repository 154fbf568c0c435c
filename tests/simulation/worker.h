#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/environment.h"
#include "tests/simulation/network.h"
#include "tests/simulation/simulation.h"

namespace ddprun::testing {

// Finds a host by its address in the environment.
using FindHost = std::function<Host&(const std::string& address)>;

// The store client of a worker: it connects to the address and port in its environment, exchanges keys with the others
// under the prefix of its generation, waits for a while, increments a counter and exits; or it fails. It exits with an
// error if the store does not answer. While it waits the store may be lost: it counts itself in the next one.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  struct Plan {
    Duration start_up{};
    Duration work{};
    int exit_code = 0;
    bool replacement = false;  // it joins others that work
  };
  using Exited = std::function<void(int exit_code)>;

  Worker(Simulation& simulation, Host& host, const FindHost& find_host, const Environment& environment, int job,
         Plan plan, Exited exited);

  void start();
  // Ends it as SIGKILL would, or after SIGTERM.
  void kill();
  // Ends it with its machine.
  void lose_power();
  bool alive() const { return process_->alive(); }
  // Returns whether it has exchanged keys with all others.
  bool works() const { return step_ == Step::work || step_ == Step::done; }
  // Other workers than those of its environment may count themselves.
  void expect_newcomers() { newcomers_ = true; }
  // The store is there from now on.
  void follow_store(const std::string& address, std::uint16_t port);

 private:
  enum class Step { will, neighbour, first, barrier, work, done };

  void dial();
  void handle_packet(const std::string& bytes);
  bool advance();
  void work();
  void broken();
  void count();
  void finish(int exit_code);
  void send(const std::string& bytes);
  std::string key(const std::string& name) const { return prefix_ + name; }

  Simulation& simulation_;
  Host& host_;
  const FindHost find_host_;
  Host* master_;
  const int job_;
  const Plan plan_;
  Exited exited_;
  const ProcessPtr process_;
  const std::int64_t generation_;
  const int rank_, world_size_;
  std::uint16_t port_;
  const std::string prefix_;

  ConnectionPtr connection_;  // null: the store is lost
  int dials_ = 0;
  bool moved_ = false;  // the store is at master_ and port_, and has not been dialled there
  std::string received_;
  Step step_ = Step::will;
  bool newcomers_ = false;
};

}  // namespace ddprun::testing
