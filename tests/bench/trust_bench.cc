#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <fmt/format.h>

#include "common/descriptors.h"
#include "common/error.h"
#include "common/standard_output.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/store/authenticate.h"
#include "rendezvous/store/local_socket.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/bench/helpers.h"
#include "tests/bench/median.h"
#include "tests/bench/subcommand.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;
using Clock = std::chrono::steady_clock;
using Known = std::shared_ptr<const Credentials>;
using Transport = Credentials::Transport;

struct Options {
  int handshakes = 500;
  int gets = 40'000;  // in slices that are long beside the time until the server polls
  int sessions = 1000;
};

Deadline soon() {
  return Deadline::in(std::chrono::seconds(60));
}

Known credentials(unsigned char fill, Transport transport) {
  Secret::Bytes bytes;
  bytes.fill(fill);
  return std::make_shared<Credentials>(Secret(bytes), "job", transport);
}

// Adopts the connections of a Unix socket, as an agent does.
class LocalSocket {
 public:
  LocalSocket(boost::asio::io_context& loop, StoreServer& server, const std::string& path)
      : server_(server), acceptor_(loop, {path}) {
    accept();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, boost::asio::local::stream_protocol::socket socket) {
      if (error) return;
      std::string request;
      for (char byte = 0; byte != '\n'; request += byte) boost::asio::read(socket, boost::asio::buffer(&byte, 1));
      server_.adopt(UniqueFd(socket.release()), "");
      accept();
    });
  }

  StoreServer& server_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
};

// A rendezvous server in a process of its own. It admits everybody if known is null.
class Server {
 public:
  explicit Server(const Known& known, const std::string& local_socket = "")
      : helper_([known, local_socket](Line& line) {
          boost::asio::io_context loop;
          StoreServerOptions options{.host = "127.0.0.1"};
          if (known) options.admission = std::make_shared<Admission>(Admission{.credentials = known});
          auto server = std::make_unique<StoreServer>(loop, options);
          std::optional<LocalSocket> local;
          if (!local_socket.empty()) local.emplace(loop, *server, local_socket);
          HostedEndpoint endpoint(loop, std::move(server));
          line.say(std::to_string(endpoint.port()));
          loop.run();
        }) {
    port_ = static_cast<std::uint16_t>(std::stoi(helper_.line().hear()));
  }
  std::uint16_t port() const { return port_; }
  TcpStore client(const Known& known, const std::string& local_socket = "") const {
    return TcpStore({.host = "127.0.0.1", .port = port_, .credentials = known, .local_socket = local_socket}, soon());
  }

 private:
  Helper helper_;
  std::uint16_t port_ = 0;
};

template <class Action>
double seconds_of(Action action) {
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class TrustBench {
 public:
  TrustBench(const Options& options, bool json) : options_(options), json_(json) {}

  void run() {
    raise_descriptor_limit();  // before the servers are forked
    handshakes();
    gets();
    sessions();
  }

 private:
  void report(const char* what, const std::string& kind, double value, const char* unit) const {
    write_standard_output(
        json_ ? fmt::format("{{\"what\": \"{}\", \"kind\": \"{}\", \"value\": {:.6g}, \"unit\": \"{}\"}}\n", what, kind,
                            value, unit)
              : fmt::format("{:<40} {:<10} {:>12.4g} {}\n", what, kind, value, unit));
  }

  // Measures from the connection to the authenticated one, both sides of the exchange.
  void handshakes() const {
    for (const auto transport : {Transport::tls, Transport::clear}) {
      const auto known = credentials(1, transport);
      const Server server(known);
      std::vector<double> times;
      for (int i = 0; i < options_.handshakes; ++i)
        times.push_back(seconds_of([&] {
          const auto fd = connect_once("127.0.0.1", server.port(), soon());
          authenticate(fd.get(), *known, soon());
        }));
      report("connection with handshake", transport == Transport::tls ? "tls" : "challenge", 1e6 * median(times), "us");
    }
  }

  // Measures the four by turns.
  void gets() const {
    const auto tls = credentials(1, Transport::tls);
    const testing::TempDir folder;
    const auto path = (folder / "agent.sock").string();
    const Server open(nullptr), plain(tls), sealed(tls), local(tls, path);
    TcpStore clients[] = {open.client(nullptr), plain.client(nullptr), sealed.client(tls), local.client(nullptr, path)};
    const char* names[] = {"open", "plain", "tls", "unix"};
    std::vector<double> times[std::size(names)];
    for (auto& client : clients) client.set("key", std::string(64, 'v'), soon());
    for (int slice = 0; slice < 20; ++slice)
      for (std::size_t kind = 0; kind < std::size(names); ++kind)
        for (int i = 0; i < options_.gets / 20; ++i)
          times[kind].push_back(seconds_of([&] { clients[kind].get("key", soon()); }));
    for (std::size_t kind = 0; kind < std::size(names); ++kind)
      report("get of 64 bytes", names[kind], 1e6 * median(times[kind]), "us");
  }

  // Measures until every agent has been notified of the round.
  void sessions() const {
    for (const auto& known : {Known(), credentials(1, Transport::tls)}) {
      const Server server(known);
      boost::asio::io_context loop;
      std::vector<std::unique_ptr<SessionClient>> agents;
      int left = options_.sessions;
      const double time = seconds_of([&] {
        for (int i = 0; i < options_.sessions; ++i) {
          const auto name = "agent" + std::to_string(i);
          agents.push_back(std::make_unique<SessionClient>(
              loop, SessionClientOptions{.host = "127.0.0.1", .port = server.port(), .credentials = known}));
          agents.back()->join({.id = name, .host = name},
                              {.min_nodes = options_.sessions, .max_nodes = options_.sessions},
                              [&](const RendezvousEvent& event) {
                                if (const auto* lost = std::get_if<ContactLost>(&event)) throw Error(lost->error);
                                if (std::holds_alternative<RoundProposed>(event) && --left == 0) loop.stop();
                              });
        }
        loop.run();
      });
      report("sessions until the first round", known ? "tls" : "open", time, "s");
    }
  }

  const Options options_;
  const bool json_;
};

}  // namespace

Run trust_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "open: a server that admits everybody; plain: a client of the job's user at a server that requires "
      "authentication.");
  subcommand.add_option("--handshakes", options->handshakes, "connections of each kind")->capture_default_str();
  subcommand.add_option("--gets", options->gets, "requests of each kind")->capture_default_str();
  subcommand.add_option("--sessions", options->sessions, "agents of one round")->capture_default_str();
  return [options](bool json) { TrustBench(*options, json).run(); };
}

}  // namespace ddprun::bench
