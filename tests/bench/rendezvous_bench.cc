#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <fmt/core.h>

#include "common/descriptors.h"
#include "common/error.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_server.h"
#include "tests/bench/helpers.h"
#include "tests/bench/load.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;
namespace asio = boost::asio;

struct Options {
  int agents = 1000;
  int clients = 10'000;
  int processes = 4;
  int rounds = 3;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// ---- the helpers

// A store with the rendezvous behind its sessions, as ddprun-store serves it.
void serve(Line& line) {
  asio::io_context loop{1};
  auto server = std::make_unique<StoreServer>(loop, StoreServerOptions{.host = "127.0.0.1"});
  line.say(std::to_string(server->port()));
  const HostedEndpoint endpoint(loop, std::move(server));
  loop.run();
}

JobPolicy policy_for(int agents) {
  JobPolicy policy{.run_id = "bench", .min_nodes = agents, .max_nodes = agents, .max_restarts = 1'000'000};
  policy.last_call = std::chrono::milliseconds(0);
  return policy;
}

// The real clients of some of the agents, on one event loop, without workers.
class Agents {
 public:
  Agents(std::uint16_t port, int first, int count, int of) : policy_(policy_for(of)), count_(count) {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(
          std::make_unique<SessionClient>(loop_, SessionClientOptions{.host = "127.0.0.1", .port = port}));
      names_.push_back("node" + std::to_string(first + i));
    }
  }

  void join() {
    for (int i = 0; i < count_; ++i) {
      SessionClient& client = *clients_[static_cast<std::size_t>(i)];
      client.join({.id = names_[static_cast<std::size_t>(i)], .host = names_[static_cast<std::size_t>(i)]}, policy_,
                  [this, &client](const RendezvousEvent& event) { hear(client, event); });
    }
    run_until_all_started();
  }
  // A worker of the first agent has failed: all join the next round.
  void fail() {
    clients_.front()->report_failure(generation_, {{.host = names_.front(), .exit_code = 1}}, Survivors::stopped);
  }
  void run_until_all_started() {
    started_ = 0;
    loop_.restart();
    loop_.run();
    if (problem_) throw Error(*problem_);
  }

 private:
  void hear(SessionClient& client, const RendezvousEvent& event) {
    if (const auto* proposed = std::get_if<RoundProposed>(&event)) client.ready(proposed->round.generation, 29500);
    if (const auto* started = std::get_if<RoundStarted>(&event)) {
      generation_ = started->round.generation;
      if (++started_ == count_) loop_.stop();
    }
    if (const auto* lost = std::get_if<ContactLost>(&event)) {
      problem_ = lost->error;
      loop_.stop();
    }
  }

  asio::io_context loop_{1};
  const JobPolicy policy_;
  const int count_;
  std::vector<std::unique_ptr<SessionClient>> clients_;
  std::vector<std::string> names_;
  std::int64_t generation_ = 0;
  int started_ = 0;
  std::optional<Error> problem_;
};

// Joins on request, then joins the next round on each request; "fail" begins one.
void be_agents(Line& line, std::uint16_t port, int first, int count, int of) {
  Agents agents(port, first, count, of);
  line.say("here");
  line.hear();
  agents.join();
  line.say("started");
  for (;;) {
    if (line.hear() == "fail") agents.fail();
    agents.run_until_all_started();
    line.say("started");
  }
}

// Connects on request, and passes one barrier on request.
void be_store_clients(Line& line, std::uint16_t port, int count, int of) {
  line.say("here");
  line.hear();
  Load load(
      {.host = "127.0.0.1",
       .port = port,
       .connections = count,
       .greeting = rendezvous::encode(rendezvous::ValidateRequest{}) + rendezvous::encode(rendezvous::PingRequest{1})});
  const Operation greeting{{.request = "", .reply_bytes = 4}};
  const Operation barrier{
      {.request = rendezvous::encode(rendezvous::BarrierRequest{"/barrier", of}), .reply_bytes = 1}};
  load.run(std::vector<Operation>(static_cast<std::size_t>(count), greeting), std::chrono::duration<double>(0));
  line.say("connected");
  line.hear();
  load.run(std::vector<Operation>(static_cast<std::size_t>(count), barrier), std::chrono::duration<double>(0));
  line.say("through");
  line.hear();
}

// ---- this program

// Sends all of them a word, and waits until each has answered.
double time_of(std::vector<Helper>& helpers, const std::string& first_word = "go") {
  const auto start = Clock::now();
  for (std::size_t i = 0; i < helpers.size(); ++i) helpers[i].line().say(i == 0 ? first_word : "go");
  for (auto& helper : helpers) helper.line().hear();
  return ms_since(start);
}

struct Share {
  int first, count;
};
std::vector<Share> shares(int all, int processes) {
  std::vector<Share> result;
  for (int i = 0; i < processes; ++i) {
    const int first = static_cast<int>(static_cast<long>(all) * i / processes);
    const int end = static_cast<int>(static_cast<long>(all) * (i + 1) / processes);
    if (end > first) result.push_back({first, end - first});
  }
  return result;
}

struct Server {
  Helper helper{serve};
  std::uint16_t port = static_cast<std::uint16_t>(std::stoi(helper.line().hear()));
};

double bytes_each(std::size_t before, std::size_t after, int count) {
  return after > before ? static_cast<double>(after - before) / count : 0;
}

void measure_agents(const Options& options, bool json) {
  Server server;
  std::vector<Helper> helpers;
  for (const auto& [first, count] : shares(options.agents, options.processes))
    helpers.emplace_back([&server, first = first, count = count, of = options.agents](Line& line) {
      be_agents(line, server.port, first, count, of);
    });
  for (auto& helper : helpers) helper.line().hear();
  const auto before = server.helper.resident_bytes();
  const double form = time_of(helpers);
  double reform = 0;
  for (int i = 0; i < options.rounds; ++i) reform += time_of(helpers, "fail") / options.rounds;
  const double bytes = bytes_each(before, server.helper.resident_bytes(), options.agents);
  if (json)
    fmt::print(
        "{{\"what\": \"agents\", \"count\": {}, \"processes\": {}, \"form_ms\": {:.1f}, \"reform_ms\": {:.1f}, "
        "\"server_bytes_per_connection\": {:.0f}}}\n",
        options.agents, helpers.size(), form, reform, bytes);
  else
    fmt::print("{:<30} {:>8} {:>12.1f} {:>12.1f} {:>14.0f}\n", "agents: join, next round", options.agents, form, reform,
               bytes);
}

void measure_barrier(const Options& options, bool json) {
  Server server;
  std::vector<Helper> helpers;
  for (const auto& [first, count] : shares(options.clients, options.processes))
    helpers.emplace_back(
        [&server, count = count, of = options.clients](Line& line) { be_store_clients(line, server.port, count, of); });
  for (auto& helper : helpers) helper.line().hear();
  const auto before = server.helper.resident_bytes();
  const double connect = time_of(helpers);
  const double idle_bytes = bytes_each(before, server.helper.resident_bytes(), options.clients);
  const double barrier = time_of(helpers);
  if (json)
    fmt::print(
        "{{\"what\": \"store_clients\", \"count\": {}, \"processes\": {}, \"connect_ms\": {:.1f}, \"barrier_ms\": "
        "{:.1f}, \"server_bytes_per_connection\": {:.0f}}}\n",
        options.clients, helpers.size(), connect, barrier, idle_bytes);
  else
    fmt::print("{:<30} {:>8} {:>12.1f} {:>12.1f} {:>14.0f}\n", "store: connect, one barrier", options.clients, connect,
               barrier, idle_bytes);
}

void run(const Options& options, bool json) {
  const auto descriptors = raise_descriptor_limit().now;
  if (static_cast<std::size_t>(options.clients) + 64 > descriptors)
    throw make_error(Errc::usage, "--clients {}: the server may have {} descriptors open (ulimit -n)", options.clients,
                     descriptors);
  if (!json) fmt::print("{:<30} {:>8} {:>12} {:>12} {:>14}\n", "", "count", "first ms", "then ms", "bytes each");
  measure_agents(options, json);
  measure_barrier(options, json);
}

}  // namespace

Run rendezvous_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "A server and its clients, in processes of their own on this machine. agents: real sessions, from the first dial "
      "until each\n"
      "has heard that the round has started; then from a failure until each has heard of the next start (mean). store: "
      "until all\n"
      "have connected and had an answer; then one barrier of all. bytes each: resident memory of the server for each "
      "connection.");
  subcommand.add_option("--agents", options->agents, "sessions in one round")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  subcommand.add_option("--clients", options->clients, "of the store, in one barrier")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--processes", options->processes, "that the clients are spread over")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "after the first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
