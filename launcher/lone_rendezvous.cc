#include "ddprun/launcher/lone_rendezvous.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "ddprun/launcher/failure_report.h"
#include "ddprun/rendezvous/membership_text.h"

namespace ddprun {
namespace {

class LoneRendezvous : public RendezvousBackend, private Rendezvous {
 public:
  explicit LoneRendezvous(boost::asio::io_context& loop) : loop_(loop), alive_(std::make_shared<int>(0)) {}

  Rendezvous& rendezvous() override { return *this; }
  std::string endpoint() const override { return "this process"; }
  bool is_host() const override { return true; }
  bool serves_workers() const override { return false; }
  void drain(Deadline, std::function<void()> done) override { boost::asio::post(loop_, std::move(done)); }

 private:
  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override {
    policy_ = policy;
    handler_ = std::move(handler);
    round_.members = {{.node_id = self.id, .host = self.host, .address = "127.0.0.1", .nproc = self.nproc}};
    round_.world_size = self.nproc;
    tell(RoundProposed{round_, "first round"});
  }

  void ready(std::int64_t generation, std::uint16_t worker_store_port) override {
    if (generation != round_.generation) return;
    round_.master_addr = "127.0.0.1";
    round_.master_port = worker_store_port;
    tell(RoundStarted{round_});
  }

  void report_success(std::int64_t) override { tell(JobEnded{{.success = true, .reason = "all workers succeeded"}}); }

  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) override {
    if (generation != round_.generation || failures.empty()) return;
    const auto& root = failures.front();
    if (round_.restarts_used >= policy_.max_restarts) {
      tell(JobEnded{{.exit_code = exit_code_of(root), .reason = one_line(root), .failures = failures}});
      return;
    }
    ++round_.generation;
    ++round_.restarts_used;
    tell(RoundProposed{
        round_, fmt::format("{}; restart {} of {}", one_line(root), round_.restarts_used, policy_.max_restarts)});
  }

  void leave(const std::string&) override { handler_ = nullptr; }

  // From the loop, never from within a call.
  void tell(RendezvousEvent event) {
    boost::asio::post(loop_, [this, alive = std::weak_ptr<int>(alive_), event = std::move(event)] {
      if (!alive.expired() && handler_) handler_(event);
    });
  }

  boost::asio::io_context& loop_;
  std::shared_ptr<int> alive_;
  JobPolicy policy_;
  Handler handler_;
  Round round_;
};

}  // namespace

std::unique_ptr<RendezvousBackend> open_lone_rendezvous(boost::asio::io_context& loop) {
  return std::make_unique<LoneRendezvous>(loop);
}

}  // namespace ddprun
