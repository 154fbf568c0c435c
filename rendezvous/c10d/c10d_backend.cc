// The c10d back end: the server at the endpoint forms the rounds, over sessions. The host of the endpoint serves it; an
// agent checks whether it runs there when the back end is opened or the endpoint's name has been looked up, and again
// before each redial, so that another agent on that host replaces a lost server; not while the agents may elect one of
// them instead (SuccessionAgent).
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/host_port.h"
#include "common/loopback.h"
#include "rendezvous/backend.h"
#include "rendezvous/c10d/succession_agent.h"
#include "rendezvous/hosting/endpoint.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"

namespace ddprun {
namespace {

BackendOptions normalized(BackendOptions options) {
  if (!options.standalone) return options;
  options.host = loopback_address();
  options.port = 0;
  options.is_host = true;
  return options;
}

class C10dBackend final : public RendezvousBackend {
 public:
  C10dBackend(boost::asio::io_context& loop, BackendOptions options)
      : loop_(loop), options_(std::move(options)), hosting_(decide_hosting(options_.host, options_.is_host)) {
    succession_ = std::make_unique<SuccessionAgent>(
        loop_, SuccessionAgentOptions{.endpoint = {.host = options_.host, .port = options_.port},
                                      .serves_endpoint = [this] { return hosted_ != nullptr; },
                                      .survives_tie = options_.survives_tie,
                                      .credentials = options_.credentials,
                                      .admission = options_.admission});
    try_to_host();
    succession_->set_endpoint({.host = dialled_host(), .port = options_.port});
    client_ = std::make_unique<SessionClient>(
        loop_, SessionClientOptions{.host = dialled_host(),
                                    .port = options_.port,
                                    .within_process = [this] { return connect_within(); },
                                    .before_retry = [this] { try_to_host(); },
                                    .on_addresses = [this](const auto& addresses) { decide(addresses); },
                                    .rejoin_timeout = options_.store_timeout,
                                    .credentials = options_.credentials,
                                    .choice = succession_.get()});
    succession_->on_change([this] { client_->redial(); });
    succession_->on_given_up([this] { client_->give_server_up(); });
  }

  Rendezvous& rendezvous() override { return *client_; }
  std::string endpoint() const override { return format_host_port(options_.host, options_.port); }
  bool is_host() const override { return hosted_ || succession_->serving(); }
  bool serves_workers() const override { return false; }

  void on_server_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> failed) override {
    failure_bound_ = bound;
    server_failed_ = std::move(failed);
    if (hosted_) hosted_->server().on_accept_failure(failure_bound_, server_failed_);
  }

  void withdraw(const std::string& reason) override {
    client_->leave(reason);
    for (auto* server : servers()) server->withdraw(reason);
  }

  void drain(std::chrono::milliseconds results, std::function<void()> done) override {
    const auto all = servers();
    if (all.empty()) return boost::asio::post(loop_, std::move(done));
    const auto left = std::make_shared<std::size_t>(all.size());
    for (auto* server : all)
      server->drain(results, [left, done] {
        if (--*left == 0) done();
      });
  }

 private:
  std::vector<HostedEndpoint*> servers() {
    std::vector<HostedEndpoint*> all;
    for (auto* server : {hosted_.get(), succession_->serving()})
      if (server) all.push_back(server);
    return all;
  }

  void decide(const std::vector<std::string>& addresses) {
    if (hosting_) return;
    hosting_ = decide_hosting(addresses);
    try_to_host();
  }

  void try_to_host() {
    if (hosted_ || !hosting_ || succession_->awaits_election()) return;
    auto server = serve_endpoint(loop_, options_.host, options_.port, *hosting_, options_.admission);
    if (!server) return;
    options_.port = server->port();
    hosted_ = std::make_unique<HostedEndpoint>(loop_, std::move(server));
    succession_->watch(*hosted_);
    if (server_failed_) hosted_->server().on_accept_failure(failure_bound_, server_failed_);
  }

  UniqueFd connect_within() { return hosted_ ? hosted_->server().connect_within() : UniqueFd(); }

  // With is_host=true the endpoint's name need not resolve to this host, so this agent dials itself over loopback,
  // where it listens on all interfaces.
  std::string dialled_host() const {
    const bool dial_loopback = hosted_ && hosting_ == Hosting::required && listen_address(options_.host).empty();
    return dial_loopback ? loopback_address() : options_.host;
  }

  boost::asio::io_context& loop_;
  BackendOptions options_;
  std::optional<Hosting> hosting_;  // unset until the endpoint's name has been looked up
  std::chrono::milliseconds failure_bound_{};
  std::function<void(const Error&)> server_failed_;
  std::unique_ptr<HostedEndpoint> hosted_;
  std::unique_ptr<SuccessionAgent> succession_;
  std::unique_ptr<SessionClient> client_;  // destroyed first, since the server has a session with it
};

}  // namespace

OpenBackend open_c10d;
std::unique_ptr<RendezvousBackend> open_c10d(boost::asio::io_context& loop, const BackendOptions& options) {
  return std::make_unique<C10dBackend>(loop, normalized(options));
}

}  // namespace ddprun
