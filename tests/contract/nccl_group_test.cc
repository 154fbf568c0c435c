#include "worker/comm/backends/nccl/nccl_group.h"

#include <atomic>

#include "rendezvous/store/memory_store.h"
#include "worker/comm/bootstrap/await_ranks.h"
#include "worker/comm/execution/transport_group.h"
#include "worker/comm/registry/backends.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("without a GPU, or without NCCL in the build, an nccl group fails at once and says why") {
  if (comm::nccl_available()) SKIP("there is a GPU");
  const auto connect = [] { return std::make_shared<MemoryStore>(); };
  const auto error =
      contract::error_of([&] { comm::make_group("nccl", {.rank = 0, .size = 2, .connect_store = connect}); });
  INFO(error.what());
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()).find("use gloo") != std::string::npos);
}

namespace {

// Represents a rank whose build has NCCL: waits for all ranks, as any back end does.
class Waiting : public comm::Transport {
 public:
  explicit Waiting(const GroupOptions& options) : rank_(options.rank), size_(options.size) {}
  comm::TransportTraits traits() const override { return {.backend = "nccl"}; }
  void connect(Store& store, const std::string& prefix, Deadline deadline) override {
    comm::exchange(store, prefix + "arrived/", rank_, size_, "", interrupted_, deadline);
  }
  void execute(const comm::Collective&) override {}
  std::unique_ptr<comm::Transfer> start_transfer(const comm::Operation&, Span) override { return nullptr; }
  void interrupt() noexcept override { interrupted_ = true; }

 private:
  const int rank_, size_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

TEST_CASE("ranks that wait for a rank without NCCL name it at once") {
  if (comm::nccl_available()) SKIP("there is a GPU");
  std::vector<std::string> messages(3);
  contract::make_groups(
      [&](const GroupOptions& options) -> std::unique_ptr<ProcessGroup> {
        try {
          if (options.rank == 1) return comm::make_group("nccl", options);
          return comm::make_transport_group(std::make_shared<Waiting>(options), options, {"nccl"});
        } catch (const Error& error) {
          messages[static_cast<std::size_t>(options.rank)] = error.what();
          return nullptr;
        }
      },
      3, std::chrono::hours(1));
  for (const int rank : {0, 2}) {
    const auto& message = messages[static_cast<std::size_t>(rank)];
    CHECK(message.starts_with("rank 1 (pid "));
    CHECK(message.ends_with("): " + messages[1]));
  }
}
