#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "common/descriptors.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/standard_output.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/trust/token_file.h"

// ddprun-store: the store and the rendezvous server without an agent, for clusters that run them on a host of their
// own.
namespace {

// This time is enough to send the shutdown notice to the open sessions.
constexpr std::chrono::milliseconds shutdown_timeout{200};

void serve_until_signalled(const ddprun::StoreServerOptions& options) {
  boost::asio::io_context loop{1};
  boost::asio::signal_set signals(loop, SIGINT, SIGTERM);
  auto server = std::make_unique<ddprun::StoreServer>(loop, options);
  ddprun::write_standard_output("ddprun-store listens at " + server->endpoint() + "\n");
  std::optional<ddprun::HostedEndpoint> endpoint;
  endpoint.emplace(loop, std::move(server));
  signals.async_wait([&](const boost::system::error_code&, int) {
    endpoint->withdraw("stopped by a signal");
    endpoint->drain(shutdown_timeout, [&] { endpoint.reset(); });
  });
  loop.run();
}

// Admits any job whose agents know the token.
std::shared_ptr<const ddprun::Admission> admission(const std::string& token_file) {
  auto credentials = std::make_shared<ddprun::Credentials>(ddprun::read_token_file(token_file), "none");
  return std::make_shared<ddprun::Admission>(ddprun::Admission{.credentials = std::move(credentials)});
}

int run(int argc, char** argv) {
  ddprun::StoreServerOptions options{.port = 29500};
  CLI::App app{"Serves a rendezvous store to ddprun and PyTorch processes until SIGINT or SIGTERM.", "ddprun-store"};
  app.add_option("--port", options.port, "TCP port; 0 lets the system choose")->capture_default_str();
  std::string token_file;
  app.add_option("--token_file", token_file,
                 "file with the token that clients on other hosts have to know; they need none if not given");
  app.add_option("--host", options.host, "address to listen at; all of them if not given");
  try {
    app.parse(argc, argv);
    if (!token_file.empty()) options.admission = admission(token_file);
    ddprun::raise_descriptor_limit();
    serve_until_signalled(options);
    return ddprun::exit_success;
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    ddprun::log::error("{}", e.what());
    return ddprun::exit_usage;
  }
}

}  // namespace

int main(int argc, char** argv) {
  ddprun::log::init("ddprun-store");
  try {
    const int code = run(argc, argv);
    ddprun::flush_standard_output();
    return code;
  } catch (const ddprun::Error& e) {
    ddprun::log::error("{}", e.what());
    return ddprun::exit_for(e.code());
  }
}
