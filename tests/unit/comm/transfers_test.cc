// Messages that cannot be waited for.
#include <memory>
#include <pthread.h>
#include <string>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

class BegunTransfer : public Transfer {
 public:
  void wait(std::chrono::milliseconds) override {}
  int source() const override { return 0; }
};

// Notes what becomes of its transfer.
class NotingTransport : public BasicTransport {
 public:
  std::string_view backend() const override { return "noting"; }
  void connect(Store&, const std::string&, Deadline) override {}
  void execute(const Collective&) override {}
  std::unique_ptr<Transfer> start(const Operation&, Span) override {
    ++begun;
    return std::make_unique<BegunTransfer>();
  }
  void interrupt() noexcept override { interrupted = true; }

  int begun = 0;
  bool interrupted = false;
};

// Meanwhile no thread can be made: there is no room for its stack.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&previous_);
    pthread_attr_t large;
    ::pthread_getattr_default_np(&large);
    ::pthread_attr_setstacksize(&large, std::size_t{1} << 50);
    ::pthread_setattr_default_np(&large);
    ::pthread_attr_destroy(&large);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&previous_);
    ::pthread_attr_destroy(&previous_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t previous_{};
};

}  // namespace

TEST_CASE("a message that no thread can wait for breaks the group, and is over") {
  const auto transport = std::make_shared<NotingTransport>();
  const auto store = std::make_shared<MemoryStore>();
  const auto group = make_transport_group(
      transport, {.size = 2, .connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms},
      {"noting"});
  std::vector<float> values(4);
  WorkPtr work;
  {
    const NoThreads none;
    work = group->send(span_of(values), 1, 7);
  }
  CHECK(transport->begun == 1);
  CHECK(transport->interrupted);
  CHECK_THROWS_WITH(work->wait(), Catch::Contains("pid ") && Catch::Contains("no thread") && Catch::Contains("send"));
  REQUIRE(group->failure());
  CHECK(group->failure()->code() == Errc::io);
}
