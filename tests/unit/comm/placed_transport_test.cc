#include "ddprun/worker/comm/execution/placed_transport.h"

#include "ddprun/rendezvous/store/memory_store.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Answers nothing as a plain transport does, and counts what it was asked to do.
class UnusualTransport : public Transport {
 public:
  struct Unusual : std::runtime_error {
    using runtime_error::runtime_error;
  };

  std::string_view backend() const override { return "unusual"; }
  void connect(Store&, const std::string& prefix, Deadline) override { met_under = prefix; }
  int lanes() const override { return 7; }
  bool announce(const Collective& collective) noexcept override { return (announced = collective.sequence) > 0; }
  void execute(const Collective& collective) override { carried_out = collective.sequence; }
  bool accepts_raw_calls() const override { return true; }
  RegisteredBuffer allocate(std::size_t bytes) override { return plain_buffer(bytes + 1); }
  bool thread_agnostic() const override { return true; }
  bool post(const Collective& collective) override { return (posted = collective.sequence) > 0; }
  bool finish_posted(const Collective& collective, const Deadline&) override {
    return (finished = collective.sequence) > 0;
  }
  std::unique_ptr<Transfer> start(const Operation& operation, Span) override {
    throw Unusual("tag " + std::to_string(operation.tag));
  }
  std::optional<std::chrono::milliseconds> linger_timeout() const override { return 3ms; }
  void interrupt() noexcept override { interrupted = true; }

  std::string met_under;
  std::uint64_t announced = 0, carried_out = 0, posted = 0, finished = 0;
  bool interrupted = false;
};

Collective numbered(std::uint64_t sequence) {
  Collective collective;
  collective.sequence = sequence;
  return collective;
}

}  // namespace

TEST_CASE("a transport that is chosen by place passes everything on to the one that was chosen") {
  const auto chosen = std::make_shared<UnusualTransport>();
  const auto placed = make_placed_transport({.local_address = "127.0.0.1"},
                                            [&](const RankLocations& places) -> std::shared_ptr<Transport> {
                                              CHECK(places.size() == 1);
                                              return chosen;
                                            });
  MemoryStore store;
  placed->connect(store, "group/", Deadline::in(10s));
  CHECK(chosen->met_under == "group/");
  CHECK(placed->backend() == "unusual");
  CHECK(placed->lanes() == 7);
  CHECK(placed->accepts_raw_calls());
  CHECK(placed->thread_agnostic());
  CHECK(placed->allocate(4).bytes() == 5);
  CHECK(placed->announce(numbered(5)));
  CHECK(chosen->announced == 5);
  placed->execute(numbered(1));
  CHECK(chosen->carried_out == 1);
  CHECK(placed->post(numbered(2)));
  CHECK(chosen->posted == 2);
  CHECK(placed->finish_posted(numbered(3), Deadline::in(1s)));
  CHECK(chosen->finished == 3);
  CHECK_THROWS_WITH(placed->start({.kind = OpKind::send, .tag = 4}, {}), "tag 4");
  CHECK(placed->linger_timeout() == 3ms);
  placed->interrupt();
  CHECK(chosen->interrupted);
}
