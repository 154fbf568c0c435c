#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/worker/comm/backends/nccl/nccl_group.h"
#include "ddprun/worker/comm/execution/transport_group.h"

namespace ddprun::comm {
namespace {

// Joins the group only to report why it cannot: ranks whose builds have NCCL would wait for it otherwise.
class UnavailableTransport : public Transport {
 public:
  void connect(Store&, const std::string&, Deadline) override {
    throw Error(Errc::unsupported,
                "this build has no NCCL back end (dist.backend = nccl; -DDDPRUN_CUDA=ON builds it): use gloo");
  }
  TransportTraits traits() const override { return {.backend = "nccl"}; }
  void execute(const Collective&) override {}
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override { return nullptr; }
  void interrupt() noexcept override {}
};

}  // namespace

bool nccl_available() {
  return false;
}

std::string why_no_nccl() {
  return fmt::format("on host {}, whose build has no NCCL", local_host_name());
}

std::optional<int> device_of(const void*) {
  return std::nullopt;
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options) {
  return make_transport_group(std::make_shared<UnavailableTransport>(), options, {"nccl"});
}

std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options, int, const char*) {
  return make_nccl_group(options);
}

}  // namespace ddprun::comm
