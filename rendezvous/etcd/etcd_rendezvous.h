#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/deadline.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/rendezvous.h"

namespace ddprun {

struct EtcdRendezvousOptions {
  EtcdServers servers;
  std::string prefix = "/ddprun";  // the prefix of all keys
};

// The Rendezvous of the etcd back end (ETCD.md): runs a JobNode with its lease, its requests and its watch.
//
// join() retries until an etcd server responds, at most for the policy's join_timeout. The lease is then renewed each
// keep_alive_interval; its time to live is keep_alive_interval x keep_alive_max_attempt in whole seconds, or the least
// that etcd grants. Requests are retried, at each server in turn, while the lease is valid.
// Ownership: the event loop must outlive it; the handler may destroy it.
// Threads: all calls and the handler on the event loop. The destructor may block for a second, see there.
// Errors: ContactLost with
//   Errc::timeout          no etcd server responded in time
//   Errc::usage            this node was refused (other options, another job of the same id)
//   Errc::connection_lost  the lease has expired by this node's clock: etcd was unreachable for too long
//   Errc::peer_lost        the lease has expired, or the job's leader counts this node as lost
//   others                 etcd refused a request, or a key holds unexpected data
class EtcdRendezvous final : public Rendezvous {
 public:
  EtcdRendezvous(boost::asio::io_context& loop, EtcdRendezvousOptions options);
  // Closes the connections as a crash would, but waits up to a second for a leave() in progress.
  ~EtcdRendezvous() override;

  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override;
  void ready(std::int64_t generation, std::uint16_t worker_store_port) override;
  void report_success(std::int64_t generation) override;
  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                      Survivors survivors) override;
  void report_preempted(std::int64_t generation) override;
  // Has no effect: the state of workers is not kept in etcd.
  void report_node(std::int64_t generation, const NodeReport& report) override;
  void request_stop(const std::string& who) override;
  void leave(const std::string& reason) override;

  // Removes this node's keys, and the job's if this node leads and all others have the job result. Calls done once from
  // the loop, at the deadline at the latest.
  void finish(Deadline deadline, std::function<void()> done);

 private:
  class JobSession;
  struct PendingDeparture;
  boost::asio::io_context& loop_;
  const EtcdRendezvousOptions options_;
  std::shared_ptr<JobSession> session_;
  std::shared_ptr<PendingDeparture> pending_departure_;  // after leave()
};

}  // namespace ddprun
