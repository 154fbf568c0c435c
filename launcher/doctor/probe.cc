#include "launcher/doctor/probe.h"

#include <iostream>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "launcher/doctor/host_facts.h"
#include "launcher/doctor/link_test.h"

namespace ddprun::doctor {
namespace {

// Serves the link tests of other hosts in a thread of its own until the destructor.
class ServerThread {
 public:
  explicit ServerThread(const std::string& token)
      : server_(token), thread_([this] {
          while (server_.serve_one()) continue;
        }) {}
  ~ServerThread() {
    server_.cancel();
    thread_.join();
  }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  std::uint16_t port() const { return server_.port(); }

 private:
  LinkServer server_;
  std::thread thread_;
};

std::string answer(const std::string& line, const std::string& token) {
  std::istringstream words(line);
  std::string verb, address;
  int id = 0, port = 0;
  if (!(words >> verb >> id >> address >> port) || verb != "test")
    return "0 error '" + line + "' is no request of ddprun doctor";
  try {
    const auto figures = test_link(address, static_cast<std::uint16_t>(port), token, Deadline::in(link_timeout));
    return fmt::format("{} link {} {} {} {}", id, figures.round_trip.count(), figures.sent_bytes_per_s,
                       figures.received_bytes_per_s, figures.clock_ahead.count());
  } catch (const Error& e) {
    return fmt::format("{} error {}", id, e.what());
  }
}

std::string read_token() {
  std::string verb, token, rest;
  if (!(std::cin >> verb >> token) || verb != "token" || !std::getline(std::cin, rest))
    throw make_error(Errc::protocol, "{} is for use by ddprun doctor only", probe_option);
  return token;
}

}  // namespace

int run_probe(const Environment& environment) {
  const auto token = read_token();
  const ServerThread server(token);
  write_standard_output(
      fmt::format("{}facts {} {}\n", message_prefix, server.port(), to_json(collect_facts(environment))));
  for (std::string line; std::getline(std::cin, line);)
    write_standard_output(fmt::format("{}{}\n", message_prefix, answer(line, token)));
  return exit_success;
}

}  // namespace ddprun::doctor
