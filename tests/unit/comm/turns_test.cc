// Which steps a collective takes where its caller's thread carries it out.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/memory_store.h"
#include "ddprun/worker/comm/transport/transport_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

// Notes what it is asked to do, and in which thread.
class NotingTransport : public BasicTransport {
 public:
  std::string_view backend() const override { return "noting"; }
  void connect(Store&, const std::string&, Deadline) override {}
  bool runs_anywhere() const override { return true; }
  bool announce(const Collective& collective) noexcept override { return note("announce", collective); }
  void carry_out(const Collective& collective) override { note("carry out", collective); }
  std::unique_ptr<Transfer> start(const Operation&, Span) override {
    throw Error(Errc::internal, "there are no transfers here");
  }
  void interrupt() noexcept override {}

  std::vector<std::string> notes;
  std::thread::id thread;

 private:
  bool note(const std::string& step, const Collective& collective) {
    notes.push_back(step + " " + std::to_string(collective.sequence));
    thread = std::this_thread::get_id();
    return true;
  }
};

}  // namespace

// It comes before the ledger knows of the collective: nobody could explain its failure.
static_assert(noexcept(std::declval<Transport&>().announce(std::declval<const Collective&>())));

TEST_CASE("a blocking collective is announced before it is carried out, unless it is made of others") {
  const auto transport = std::make_shared<NotingTransport>();
  const auto store = std::make_shared<MemoryStore>();
  const auto group = make_transport_group(
      transport, {.connect_store = [store] { return store; }, .timeout = 10s, .freeze_bound = 0ms}, {"scripted"});
  std::vector<float> values(4), none;
  const OpOptions blocking{.timeout = {}, .blocking = true};
  group->allreduce(span_of(values), {}, blocking);
  group->allreduce(span_of(values), Reduction::premultiplied_sum(2), blocking);
  group->allreduce(span_of(none), {}, blocking);
  group->barrier(blocking);
  CHECK(transport->notes ==
        std::vector<std::string>{"announce 0", "carry out 0", "carry out 1", "announce 3", "carry out 3"});
  CHECK(transport->thread == std::this_thread::get_id());
}
