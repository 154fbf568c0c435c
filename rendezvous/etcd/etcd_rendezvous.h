#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/etcd/etcd_client.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

struct EtcdRendezvousOptions {
  EtcdServers servers;
  std::string prefix = "/ddprun";  // of all keys
};

// An agent's part in a job whose rounds live in etcd (ETCD.md): a JobNode with its lease, its requests and its watch.
//
// join() tries until an etcd answers, at most for the policy's join_timeout. From then on the lease is kept alive each
// keep_alive_interval; its time to live is keep_alive_interval x keep_alive_max_attempt in whole seconds, not below
// what etcd grants. Requests are repeated, at one server after the other, as long as the lease lives. ContactLost comes
// with
//   Errc::timeout          no etcd answered in time
//   Errc::usage            this node was refused (other options, another job of the same id)
//   Errc::connection_lost  the lease must have ended by this node's clock: etcd was away for too long
//   Errc::peer_lost        the lease is gone, or the job's leader counts this node as lost
//   others                 etcd answers, but refuses or does not hold what belongs there
// Lives on the event loop handed in, which must live longer; the handler may destroy this object.
class EtcdRendezvous final : public Rendezvous {
 public:
  EtcdRendezvous(boost::asio::io_context& loop, EtcdRendezvousOptions options);
  // Without a word, as a death would; but a leave() that is still on its way is given a second.
  ~EtcdRendezvous() override;

  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override;
  void ready(std::int64_t generation, std::uint16_t worker_store_port) override;
  void report_success(std::int64_t generation) override;
  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) override;
  void report_preempted(std::int64_t generation) override;
  // Goes nowhere: nobody can ask etcd for it.
  void report_workers(std::int64_t generation, const std::vector<WorkerReport>& changed) override;
  void request_stop(const std::string& who) override;
  void leave(const std::string& reason) override;

  // Removes this node's keys, and the job's when this node leads and all others have heard the verdict; then, or at the
  // deadline, calls done once from the loop.
  void finish(Deadline deadline, std::function<void()> done);

 private:
  class Session;
  struct Farewell;
  boost::asio::io_context& loop_;
  const EtcdRendezvousOptions options_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<Farewell> farewell_;  // of a leave()
};

}  // namespace ddprun
