// Messages: those for which no thread can wait, and what a transport learns of those who do.
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/memory_store.h"
#include "worker/comm/execution/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// It ends once it is awaited.
class StartedTransfer : public Transfer {
 public:
  void wait(std::chrono::milliseconds) override {
    while (!awaited() || !*awaited()) std::this_thread::yield();
  }
  int source() const override { return 0; }
};

// Records what happens to its transfer.
class RecordingTransport : public Transport {
 public:
  void connect(Store&, const std::string&, Deadline) override {}
  TransportTraits traits() const override { return {.backend = "recording"}; }
  void execute(const Collective&) override {}
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override {
    ++started;
    return std::make_unique<StartedTransfer>();
  }
  void interrupt() noexcept override { interrupted = true; }

  int started = 0;
  bool interrupted = false;
};

// While it exists no thread can be created, because its stack would be too large.
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

std::unique_ptr<ProcessGroup> make_recording_group(std::shared_ptr<Transport> transport) {
  const auto store = std::make_shared<MemoryStore>();
  return make_transport_group(
      std::move(transport),
      {.size = 2, .connect_store = [store] { return store; }, .config = {.timeout = 10s, .freeze_bound = 0ms}},
      {"recording"});
}

}  // namespace

TEST_CASE("a transfer learns that its result is awaited once a thread waits for the work") {
  const auto group = make_recording_group(std::make_shared<RecordingTransport>());
  std::vector<float> values(4);
  const auto work = group->send(span_of(values), 1, 7);
  CHECK_FALSE(work->done());
  work->wait();
  CHECK(work->done());
}

TEST_CASE("a message for which no thread can be created breaks the group and ends") {
  const auto transport = std::make_shared<RecordingTransport>();
  const auto group = make_recording_group(transport);
  std::vector<float> values(4);
  WorkPtr work;
  {
    const NoThreads none;
    work = group->send(span_of(values), 1, 7);
  }
  CHECK(transport->started == 1);
  CHECK(transport->interrupted);
  CHECK_THROWS_WITH(work->wait(),
                    Catch::Contains("pid ") && Catch::Contains("could not create a thread") && Catch::Contains("send"));
  REQUIRE(group->failure());
  CHECK(group->failure()->code() == Errc::io);
}
