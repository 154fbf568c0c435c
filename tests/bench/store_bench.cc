#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/store_server_thread.h"
#include "tests/bench/echo_server.h"
#include "tests/bench/load.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;

struct Options {
  std::vector<int> connections{1, 8, 64};
  std::vector<std::string> ops{"echo", "set", "get", "add", "wait"};
  std::size_t value_bytes = 64;
  double seconds = 0.5;
  bool c10d = false;
  std::string endpoint;
};

std::string key_of(int connection) {
  return "/bench/" + std::to_string(connection);
}

// The steps of one operation over a connection; reply sizes are known, so that the load needs no parser.
Operation set_steps(const std::string& key, const std::string& value) {
  return {{.request = encode(SetRequest{key, value}) + encode(PingRequest{1}), .reply_bytes = 4}};
}
Operation get_steps(const std::string& key, const std::string& value, bool c10d) {
  const std::string_view keys[] = {key};
  if (c10d)
    return {{.request = encode(WaitRequest{keys}), .reply_bytes = 1},
            {.request = encode(GetRequest{key}), .reply_bytes = 8 + value.size()}};
  return {{.request = encode(WaitGetRequest{key}), .reply_bytes = 9 + value.size()}};
}
Operation add_steps(const std::string& key) {
  return {{.request = encode(AddRequest{"/n" + key, 1}), .reply_bytes = 8}};
}
// Registered for sure before the other side sets the key; from there to the waiter's answer it is timed.
Operation wait_steps(const std::string& key, const std::string& value) {
  const std::string waited = "/w" + key;
  const std::string_view keys[] = {waited};
  return {{.request = encode(DeleteKeyRequest{waited}) + encode(WaitRequest{keys}) + encode(PingRequest{1}),
           .reply_bytes = 8 + 4,
           .timed = false},
          {.request = encode(SetRequest{waited, value}), .reply_bytes = 1, .by_notifier = true}};
}
Operation echo_steps(const std::string& value) {
  return {{.request = value, .reply_bytes = value.size()}};
}

Operation steps_of(const std::string& op, int connection, const Options& options) {
  const auto key = key_of(connection);
  const std::string value(options.value_bytes, 'v');
  if (op == "set") return set_steps(key, value);
  if (op == "get") return get_steps(key, value, options.c10d);
  if (op == "add") return add_steps(key);
  if (op == "wait") return wait_steps(key, value);
  return echo_steps(value);
}

struct Endpoint {
  std::string host;
  std::uint16_t port;
};

void report(const std::string& op, int connections, LoadResult result, bool json) {
  const auto p50 = result.latencies.quantile_us(0.5), p99 = result.latencies.quantile_us(0.99);
  if (json)
    std::printf("{\"op\": \"%s\", \"connections\": %d, \"ops_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
                op.c_str(), connections, result.ops_per_s, p50, p99);
  else
    std::printf("%-8s %11d %12.0f %10.1f %10.1f\n", op.c_str(), connections, result.ops_per_s, p50, p99);
  std::fflush(stdout);
}

void run_row(const std::string& op, int connections, const Endpoint& server, const Options& options, bool json) {
  Load load({.host = server.host,
             .port = server.port,
             .connections = connections,
             .greeting = op == "echo" ? "" : encode(ValidateRequest{})});
  if (op == "get")
    for (int i = 0; i < connections; ++i) load.run_once(i, steps_of("set", i, options));
  std::vector<Operation> operations;
  for (int i = 0; i < connections; ++i) operations.push_back(steps_of(op, i, options));
  report(op, connections, load.run(operations, std::chrono::duration<double>(options.seconds)), json);
}

void run(const Options& options, bool json) {
  std::optional<StoreServerThread> own;
  Endpoint store{};
  if (options.endpoint.empty()) {
    own.emplace(StoreServerOptions{.host = "127.0.0.1"});
    store = {"127.0.0.1", own->port()};
  } else {
    const auto given = parse_host_port(options.endpoint);
    store = {given.host, given.port_or(29500)};
  }
  EchoServer echo;
  if (!json) std::printf("%-8s %11s %12s %10s %10s\n", "op", "connections", "ops/s", "p50 us", "p99 us");
  for (const auto& op : options.ops)
    for (const int connections : options.connections)
      run_row(op, connections, op == "echo" ? Endpoint{"127.0.0.1", echo.port()} : store, options, json);
}

}  // namespace

Run store_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "One thread drives all connections, each with one request under way. echo is the floor: a thread that sends back "
      "what it\n"
      "receives. set is confirmed by a PING behind it; get is one round trip, two with --c10d; wait is from one "
      "client's set to\n"
      "the other's answer.");
  subcommand.add_option("--connections", options->connections, "clients at once")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--op", options->ops, "what to measure")
      ->delimiter(',')
      ->check(CLI::IsMember({"echo", "set", "get", "add", "wait"}))
      ->capture_default_str();
  subcommand.add_option("--value-bytes", options->value_bytes, "size of a value")->capture_default_str();
  subcommand.add_option("--seconds", options->seconds, "of each row")->capture_default_str();
  subcommand.add_flag("--c10d", options->c10d, "get as PyTorch's clients do it: WAIT, then GET");
  subcommand.add_option("--endpoint", options->endpoint,
                        "host:port of a server to measure, in place of one of its own");
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
