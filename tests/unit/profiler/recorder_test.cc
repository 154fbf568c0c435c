#include "worker/profiler/recorder.h"

#include "worker/profiler/summary.h"
#include "tests/support/catch.h"

using namespace ddprun::profiler;
using namespace std::chrono_literals;

TEST_CASE("an event's own time is without the events within it") {
  Recorder recorder;
  recorder.begin(Kind::backward, "checkpoint", "h.0", 10ns);
  recorder.begin(Kind::forward, "linear", "h.0.fc", 20ns);
  recorder.add_flops(7);
  recorder.end(50ns);
  recorder.begin(Kind::forward, "gelu", "h.0", 50ns);
  recorder.end(55ns);
  recorder.end(100ns);
  const auto events = recorder.take();
  REQUIRE(events.size() == 3);
  CHECK(events[0].name == "linear");
  CHECK(events[0].self == 30ns);
  CHECK(events[0].flops == 7);
  CHECK(events[2].name == "checkpoint");
  CHECK(events[2].duration == 90ns);
  CHECK(events[2].self == 55ns);
  CHECK(recorder.take().empty());
}

TEST_CASE("operations are summed up by name, module and pass, the longest first") {
  const auto operation = [](Kind kind, const char* name, const char* module, Time self) {
    return Event{.kind = kind, .name = name, .module = module, .duration = 2 * self, .self = self, .flops = 1e3};
  };
  const auto rows = rows_of({operation(Kind::forward, "linear", "a", 1ms), operation(Kind::forward, "linear", "b", 2ms),
                             operation(Kind::backward, "linear", "a", 5ms),
                             operation(Kind::forward, "linear", "a", 3ms), operation(Kind::phase, "data", "", 50ms)});
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].backward);
  CHECK(rows[1].module == "a");
  CHECK(rows[1].calls == 2);
  CHECK(rows[1].time == 4ms);
  CHECK(rows[2].module == "b");
  CHECK(flops_per_s(rows) == Approx(4e3 / 11e-3));
}

TEST_CASE("transfers that overlap cover their time once") {
  const auto transfer = [](Time start, Time end) {
    return Event{.kind = Kind::communication, .start = start, .duration = end - start};
  };
  const std::vector events{transfer(30ns, 40ns), transfer(0ns, 10ns), transfer(5ns, 20ns), transfer(6ns, 7ns),
                           Event{.kind = Kind::phase, .duration = 100ns}};
  CHECK(covered_by(events, Kind::communication).count() == Approx(30e-9));
}
