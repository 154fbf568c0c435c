// The choice of a group's transport while the group forms.
#include "worker/comm/execution/transport_group.h"

#include <atomic>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Blocks in connect(), if the test requests it, until it is interrupted.
class ConnectingTransport : public Transport {
 public:
  explicit ConnectingTransport(bool blocks = false) : blocks_(blocks) {}

  void connect(Store&, const std::string& prefix, Deadline) override {
    connected_under = prefix;
    connecting_ = true;
    connecting_.notify_all();
    if (!blocks_) return;
    interrupted_.wait(false);
    throw std::runtime_error("interrupted");
  }
  TransportTraits traits() const override { return {.backend = "connecting"}; }
  void execute(const Collective&) override {}
  std::unique_ptr<Transfer> start_transfer(const Operation&, Span) override { return nullptr; }
  RegisteredBuffer allocate(std::size_t bytes) override { return plain_buffer(bytes + 1); }
  void interrupt() noexcept override {
    interrupted_ = true;
    interrupted_.notify_all();
  }

  void await_connecting() { connecting_.wait(false); }
  bool interrupted() const { return interrupted_; }
  std::string connected_under;

 private:
  const bool blocks_;
  std::atomic<bool> connecting_ = false, interrupted_ = false;
};

GroupOptions options_with(const std::shared_ptr<Store>& store, int size) {
  return {.size = size,
          .connect_store = [store] { return store; },
          .prefix = "group/",
          .config = {.timeout = 60s, .local_address = "127.0.0.1", .freeze_bound = 0ms}};
}

Error failure_to_form(const TransportFactory& factory, const GroupOptions& options) {
  try {
    make_transport_group(factory, options, {"connecting"});
  } catch (const Error& error) {
    return error;
  }
  return Error(Errc::internal, "the group formed");
}

}  // namespace

TEST_CASE("a group connects and uses the transport that its factory makes for the ranks' locations") {
  const auto transport = std::make_shared<ConnectingTransport>();
  std::vector<std::string> deviceless;
  const auto group = make_transport_group(
      [&](const RankLocations& locations) {
        for (const auto& each : locations) deviceless.push_back(each.deviceless);
        return transport;
      },
      options_with(std::make_shared<MemoryStore>(), 1), {"by_location"},
      {.device = "", .deviceless = "without a device"});
  CHECK(deviceless == std::vector<std::string>{"without a device"});
  CHECK(transport->connected_under == "group/");
  CHECK(group->backend() == "connecting");
  CHECK(group->allocate(4).bytes() == 5);
}

TEST_CASE("a group that is stopped while it waits for locations makes no transport") {
  const auto store = std::make_shared<MemoryStore>();
  std::stop_source stop;
  auto options = options_with(store, 2);
  options.stop = stop.get_token();
  std::thread stopper([&] {
    store->wait({"group/place/0"}, Deadline::in(60s));  // rank 0's; rank 1's never arrives
    stop.request_stop();
  });
  bool made = false;
  const auto error = failure_to_form(
      [&](const RankLocations&) {
        made = true;
        return std::make_shared<ConnectingTransport>();
      },
      options);
  stopper.join();
  CHECK(error.code() == Errc::aborted);
  CHECK_THAT(error.what(), Catch::Contains("the group was told to stop"));
  CHECK_FALSE(made);
}

TEST_CASE("a group that is stopped while its transport connects interrupts it") {
  const auto transport = std::make_shared<ConnectingTransport>(true);
  std::stop_source stop;
  auto options = options_with(std::make_shared<MemoryStore>(), 1);
  options.stop = stop.get_token();
  std::thread stopper([&] {
    transport->await_connecting();
    stop.request_stop();
  });
  const auto error = failure_to_form([&](const RankLocations&) { return transport; }, options);
  stopper.join();
  CHECK(error.code() == Errc::aborted);
  CHECK(transport->interrupted());
}

TEST_CASE("a group that is stopped in its factory connects no transport") {
  const auto transport = std::make_shared<ConnectingTransport>();
  std::stop_source stop;
  auto options = options_with(std::make_shared<MemoryStore>(), 1);
  options.stop = stop.get_token();
  const auto error = failure_to_form(
      [&](const RankLocations&) {
        stop.request_stop();
        return transport;
      },
      options);
  CHECK(error.code() == Errc::aborted);
  CHECK(transport->connected_under.empty());
}
