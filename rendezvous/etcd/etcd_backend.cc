// The etcd back end: keeps the rounds in etcd v3, so that no agent's host is a single point of failure. This process
// serves only the workers' store of group rank 0.
#include <utility>

#include "common/host_port.h"
#include "rendezvous/backend.h"
#include "rendezvous/etcd/etcd_rendezvous.h"

namespace ddprun {
namespace {

class EtcdBackend final : public RendezvousBackend {
 public:
  EtcdBackend(boost::asio::io_context& loop, const EtcdRendezvousOptions& options)
      : endpoint_(options.servers.text()), rendezvous_(loop, options) {}

  Rendezvous& rendezvous() override { return rendezvous_; }
  std::string endpoint() const override { return endpoint_; }
  bool is_host() const override { return false; }
  bool serves_workers() const override { return false; }
  void drain(std::chrono::milliseconds results, std::function<void()> done) override {
    rendezvous_.finish(Deadline::in(results), std::move(done));
  }

 private:
  const std::string endpoint_;
  EtcdRendezvous rendezvous_;
};

}  // namespace

OpenBackend open_etcd;
std::unique_ptr<RendezvousBackend> open_etcd(boost::asio::io_context& loop, const BackendOptions& options) {
  EtcdRendezvousOptions chosen{.prefix = options.etcd_prefix};
  chosen.servers.endpoints.push_back({options.host, options.port});
  for (const auto& more : options.more_endpoints) chosen.servers.endpoints.push_back({more.host, more.port_or(2379)});
  return std::make_unique<EtcdBackend>(loop, chosen);
}

}  // namespace ddprun
