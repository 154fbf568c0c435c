#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/standard_output.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_server_thread.h"
#include "tests/bench/echo_server.h"
#include "tests/bench/load.h"
#include "tests/bench/redis.h"
#include "tests/bench/subcommand.h"
#include "tests/bench/torch_store.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;

const std::vector<std::string> all_ops{"echo", "set", "get", "add", "wait", "set_unanswered"};
constexpr int slices = 4;  // a row's time is divided among them; the servers alternate

struct Options {
  std::vector<int> connections{1, 8, 64};
  std::vector<std::string> ops = all_ops;
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
// The wait is registered before the other side sets the key; the time from there to the waiter's answer is measured.
Operation wait_steps(const std::string& key, const std::string& value) {
  const std::string waited = "/w" + key;
  const std::string_view keys[] = {waited};
  return {{.request = encode(DeleteKeyRequest{waited}) + encode(WaitRequest{keys}) + encode(PingRequest{1}),
           .reply_bytes = 8 + 4,
           .timed = false},
          {.request = encode(SetRequest{waited, value}), .reply_bytes = 1, .by_notifier = true}};
}

Operation steps_of(const std::string& op, int connection, const Options& options) {
  const auto key = key_of(connection);
  const std::string value(options.value_bytes, 'v');
  if (op == "set") return set_steps(key, value);
  if (op == "get") return get_steps(key, value, options.c10d);
  if (op == "add") return add_steps(key);
  if (op == "wait") return wait_steps(key, value);
  return {{.request = value, .reply_bytes = value.size()}};  // echo
}

Operation redis_steps(const std::string& op, int connection, const Options& options) {
  const auto key = key_of(connection);
  if (op == "set") return Redis::set(key, std::string(options.value_bytes, 'v'));
  if (op == "get") return Redis::get(key, options.value_bytes);
  return Redis::add("n" + key);
}

// One server under measurement for one row.
class Contender {
 public:
  using Steps = Operation (*)(const std::string& op, int connection, const Options& options);

  Contender(std::string name, const LoadOptions& load, Steps steps, const std::string& op, const Options& options)
      : name_(std::move(name)), load_(load) {
    for (int i = 0; i < load.connections; ++i) {
      if (op == "get") load_.run_once(i, steps("set", i, options));
      operations_.push_back(steps(op, i, options));
    }
  }

  const std::string& name() const { return name_; }
  void run(double seconds) { result_.add(load_.run(operations_, std::chrono::duration<double>(seconds))); }
  LoadResult& result() { return result_; }

 private:
  const std::string name_;
  Load load_;
  std::vector<Operation> operations_;
  LoadResult result_;
};

// All measurements, and their names.
class StoreBench {
 public:
  StoreBench(const Options& options, bool json) : options_(options), json_(json) {
    if (options.endpoint.empty()) {
      own_.emplace(StoreServerOptions{.host = "127.0.0.1"});
      host_ = "127.0.0.1";
      port_ = own_->port();
    } else {
      const auto given = parse_host_port(options.endpoint);
      host_ = given.host;
      port_ = given.port_or(29500);
    }
    redis_ = Redis::start();
    torch_ = TorchStore::available();
    if (!json)
      fmt::print("{:<16} {:>5} {:<9} {:>11} {:>9} {:>9} {:>9}\n", "op", "conns", "server", "ops/s", "p50 us", "p99 us",
                 "ddprun is");
  }

  void run() {
    for (const auto& op : options_.ops)
      for (const int connections : options_.connections) {
        if (op == "set_unanswered")
          unanswered(connections);
        else
          answered(op, connections);
      }
  }

 private:
  LoadOptions load(int connections) const {
    return {.host = host_, .port = port_, .connections = connections, .greeting = encode(ValidateRequest{})};
  }

  // Measures latency and rate of requests with answers, one in progress for each connection.
  void answered(const std::string& op, int connections) {
    std::vector<std::unique_ptr<Contender>> contenders;
    const auto add = [&](std::string name, const LoadOptions& target, Contender::Steps steps) {
      contenders.push_back(std::make_unique<Contender>(std::move(name), target, steps, op, options_));
    };
    const bool compared = op == "set" || op == "get" || op == "add";
    if (op == "echo")
      add("echo", {.host = "127.0.0.1", .port = echo_.port(), .connections = connections, .greeting = ""}, steps_of);
    else
      add("ddprun", load(connections), steps_of);
    if (compared && redis_)
      add("redis", {.host = "127.0.0.1", .port = redis_->port(), .connections = connections, .greeting = ""},
          redis_steps);
    for (int slice = 0; slice < slices; ++slice)
      for (const auto& contender : contenders) contender->run(options_.seconds / slices);
    const double ours = contenders.front()->result().ops_per_s();
    for (const auto& contender : contenders) {
      auto& result = contender->result();
      report(op, connections, contender->name(), result.ops_per_s(), result.latencies.quantile_us(0.5),
             result.latencies.quantile_us(0.99), ours);
    }
    if (compared && op != "set") torch(op, op, connections, ours);
  }

  // Measures the rate of requests without answers, until the server has received all. A server's work with them depends
  // on how much arrives at once; so both get the same clients where there is a choice.
  void unanswered(int connections) {
    if (torch_ && own_) {
      if (const auto figures =
              TorchStore::measure("set", connections, options_.value_bytes, options_.seconds, own_->port())) {
        report("set_unanswered", connections, "ddprun", figures->ops_per_s, 0, 0, figures->ops_per_s);
        return torch("set_unanswered", "set", connections, figures->ops_per_s);
      }
    }
    Load clients(load(connections));
    std::vector<std::string> requests;
    for (int i = 0; i < connections; ++i)
      requests.push_back(encode(SetRequest{key_of(i), std::string(options_.value_bytes, 'v')}));
    const auto result = clients.stream(requests, std::chrono::duration<double>(options_.seconds),
                                       {.request = encode(PingRequest{1}), .reply_bytes = 4});
    report("set_unanswered", connections, "ddprun", result.ops_per_s(), 0, 0, result.ops_per_s());
  }

  void torch(const std::string& op, const std::string& torch_op, int connections, double ours) {
    if (!torch_) return;
    if (const auto figures = TorchStore::measure(torch_op, connections, options_.value_bytes, options_.seconds))
      report(op, connections, "tcpstore", figures->ops_per_s, figures->p50_us, figures->p99_us, ours);
  }

  void report(const std::string& op, int connections, const std::string& server, double rate, double p50, double p99,
              double ours) const {
    const bool peer = server == "redis" || server == "tcpstore";
    if (json_)
      fmt::print(
          "{{\"op\": \"{}\", \"connections\": {}, \"server\": \"{}\", \"ops_per_s\": {:.0f}, \"p50_us\": {:.1f}, "
          "\"p99_us\": {:.1f}{}}}\n",
          op, connections, server, rate, p50, p99, peer ? fmt::format(", \"ddprun_ratio\": {:.3f}", ours / rate) : "");
    else
      fmt::print("{:<16} {:>5} {:<9} {:>11.0f} {:>9.1f} {:>9.1f} {:>9}\n", op, connections, server, rate, p50, p99,
                 peer ? fmt::format("{:.2f} x", ours / rate) : "");
    flush_standard_output();
  }

  const Options& options_;
  const bool json_;
  std::optional<StoreServerThread> own_;
  std::string host_;
  std::uint16_t port_ = 0;
  EchoServer echo_;
  std::unique_ptr<Redis> redis_;
  bool torch_ = false;
};

}  // namespace

Run store_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "One thread drives all connections, each with one request under way; servers that are compared take turns.\n"
      "echo is the floor: a thread that sends back what it receives. set is confirmed by a PING behind it; get is one\n"
      "round trip, two with --c10d; wait is from one client's set to the other's answer; set_unanswered is the rate\n"
      "until the server has taken all in, by TCPStore's client where there is one. Redis is measured where\n"
      "redis-server is on PATH; PyTorch's TCPStore (its Python client, a process a connection) where\n"
      "DDPRUN_TORCH_PYTHON names a Python that has torch.");
  subcommand.add_option("--connections", options->connections, "clients at once")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--op", options->ops, "what to measure")
      ->delimiter(',')
      ->check(CLI::IsMember(all_ops))
      ->capture_default_str();
  subcommand.add_option("--value-bytes", options->value_bytes, "size of a value")->capture_default_str();
  subcommand.add_option("--seconds", options->seconds, "of each row")->capture_default_str();
  subcommand.add_flag("--c10d", options->c10d, "get as PyTorch's clients do it: WAIT, then GET");
  subcommand.add_option("--endpoint", options->endpoint,
                        "host:port of a server to measure, in place of one of its own");
  return [options](bool json) { StoreBench(*options, json).run(); };
}

}  // namespace ddprun::bench
