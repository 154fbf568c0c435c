#include "worker/profiler/device_step.h"

#include "worker/profiler/intervals.h"
#include "worker/profiler/summary.h"
#include "tests/support/catch.h"

using namespace ddprun::profiler;
using namespace std::chrono_literals;

namespace {

// A log and the times of its points on the device, which are later than the host's by `behind`.
struct Step {
  DeviceLog log;
  std::vector<Time> times;

  Point at(Time device, Time behind = 1ms) {
    times.push_back(device);
    return {.number = times.size() - 1, .host = device - behind};
  }
  std::size_t number(Time device) {
    times.push_back(device);
    return times.size() - 1;
  }
  void operation(Kind kind, const char* name, Time begin, Time end, Time behind = 1ms) {
    log.begin(kind, name, "m", at(begin, behind));
    log.end(at(end, behind));
  }
  DeviceStep read() const { return read_step(log, times); }
};

std::vector<Event> on(const std::vector<Event>& events, int track) {
  std::vector<Event> found;
  for (const Event& event : events)
    if (event.track == track) found.push_back(event);
  return found;
}

// Returns a step of 100 ms, of which 10 are an exposed part of the second allreduce.
Step step_of_two_allreduces() {
  Step step;
  step.log.step_begins(step.at(1000ms));
  step.log.phase_ended(&StepTimes::data, step.at(1002ms));
  step.log.phase_ended(&StepTimes::upload, step.at(1005ms));
  step.operation(Kind::forward, "linear", 1006ms, 1030ms);
  step.log.phase_ended(&StepTimes::forward, step.at(1031ms));
  step.operation(Kind::backward, "linear", 1031ms, 1080ms);
  step.log.transferred({"allreduce", step.number(1050ms), step.number(1051ms), step.number(1061ms)});
  step.log.transferred({"allreduce", step.number(1080ms), step.number(1081ms), step.number(1092ms)});
  step.log.wait_begins(step.at(1082ms));
  step.log.wait_ended(step.at(1092ms));
  step.log.phase_ended(&StepTimes::backward, step.at(1093ms));
  step.log.phase_ended(&StepTimes::optimizer, step.at(1100ms));
  return step;
}

}  // namespace

TEST_CASE("the phases of a step on a device and its exposed communication are the whole step") {
  const auto read = step_of_two_allreduces().read();
  CHECK(read.times.data == 2ms);
  CHECK(read.times.upload == 3ms);
  CHECK(read.times.forward == 26ms);
  CHECK(read.times.backward == 52ms);
  CHECK(read.times.wait == 10ms);
  CHECK(read.times.optimizer == 7ms);
  CHECK(read.times.total() == 100ms);
  CHECK(read.copies == 3ms);
}

TEST_CASE("what of the collectives does not lie in a wait of the compute queue is hidden") {
  const auto read = step_of_two_allreduces().read();
  CHECK(read.communication == 21ms);
  CHECK(read.hidden == 11ms);
  CHECK(read.reduced.ready == std::vector<Time>{1050ms, 1080ms});
  CHECK(read.reduced.ended == std::vector<Time>{1061ms, 1092ms});
}

TEST_CASE("a broadcast is communication, and no reduction") {
  Step step;
  step.log.step_begins(step.at(0ms));
  step.log.transferred({"broadcast", step.number(1ms), step.number(2ms), step.number(5ms)});
  step.log.phase_ended(&StepTimes::forward, step.at(9ms));
  const auto read = step.read();
  CHECK(read.communication == 3ms);
  CHECK(read.hidden == 3ms);
  CHECK(read.reduced.ready.empty());
}

TEST_CASE("a step on a device has rows for its queues, and the host's row beside them") {
  const auto read = step_of_two_allreduces().read();
  const auto copies = on(read.queues, copies_track), communication = on(read.queues, communication_track);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].name == "upload");
  CHECK(copies[0].start == 1002ms);
  CHECK(copies[0].duration == 3ms);
  REQUIRE(communication.size() == 2);
  CHECK(communication[1].start == 1081ms);
  CHECK(communication[1].duration == 11ms);
  CHECK(on(read.queues, compute_track).size() == 4 + 1 + 2);  // phases, the wait, operations
  CHECK(on(read.queues, host_track).empty());
  CHECK(on(read.host, host_track).size() == read.host.size());
  CHECK(read.host.size() == 5 + 2);
}

TEST_CASE("an operation on a device has its own time there and on the host") {
  Step step;
  step.log.step_begins(step.at(0us));
  step.log.begin(Kind::backward, "checkpoint", "h.0", step.at(100us, 90us));
  step.log.begin(Kind::forward, "linear", "h.0.fc", step.at(200us, 170us));
  step.log.add_flops(7);
  step.log.end(step.at(500us, 465us));
  step.log.add_flops(2);
  step.log.end(step.at(800us, 760us));
  step.log.phase_ended(&StepTimes::backward, step.at(900us));
  const auto rows = rows_of(step.read().queues);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].operation == "checkpoint");
  CHECK(rows[0].time == 400us);
  CHECK(rows[0].host == 25us);
  CHECK(rows[0].flops == 2);
  CHECK(rows[1].operation == "linear");
  CHECK(rows[1].time == 300us);
  CHECK(rows[1].host == 5us);
  CHECK(rows[1].flops == 7);
}

TEST_CASE("the host queues the outermost operations, the copies and the update") {
  Step step;
  step.log.step_begins({.number = step.number(0ms), .host = 0us});
  step.log.phase_ended(&StepTimes::data, {.number = step.number(1ms), .host = 100us});
  step.log.phase_ended(&StepTimes::upload, {.number = step.number(2ms), .host = 103us});
  step.log.begin(Kind::forward, "outer", "", {.number = step.number(3ms), .host = 110us});
  step.log.begin(Kind::forward, "inner", "", {.number = step.number(4ms), .host = 111us});
  step.log.end({.number = step.number(5ms), .host = 115us});
  step.log.end({.number = step.number(6ms), .host = 117us});
  step.log.phase_ended(&StepTimes::forward, {.number = step.number(7ms), .host = 5000us});
  step.log.phase_ended(&StepTimes::optimizer, {.number = step.number(8ms), .host = 5020us});
  CHECK(step.read().queueing == 3us + 7us + 20us);
}

TEST_CASE("what a device has done as soon as it was queued waits for the host") {
  const auto paced = [](Time behind) {
    Step step;
    step.log.step_begins(step.at(0us, behind));
    step.log.phase_ended(&StepTimes::data, step.at(300us, behind));
    step.operation(Kind::forward, "relu", 310us, 320us, behind);
    step.log.phase_ended(&StepTimes::forward, step.at(350us, 1ms));
    step.log.phase_ended(&StepTimes::optimizer, step.at(400us, behind));
    return step.read().paced;
  };
  CHECK(paced(5us) == 20us + 50us);
  CHECK(paced(reaction_of_device) == 70us);
  CHECK(paced(reaction_of_device + 1us) == 0us);
}

TEST_CASE("points whose times are rounded are in their order all the same") {
  Step step;
  step.log.step_begins(step.at(100us));
  step.operation(Kind::forward, "relu", 200us, 199us);
  step.log.phase_ended(&StepTimes::forward, step.at(300us));
  const auto read = step.read();
  CHECK(read.times.total() == 200us);
  for (const Event& event : read.queues) CHECK(event.duration >= 0us);
}

TEST_CASE("intervals that overlap or touch are one, and have time in common with others") {
  const Intervals apart = merged({{30us, 40us}, {0us, 10us}, {10us, 20us}, {5us, 7us}});
  CHECK(apart == Intervals{{0us, 20us}, {30us, 40us}});
  CHECK(length(apart) == 30us);
  CHECK(common(apart, merged({{15us, 32us}, {39us, 100us}})) == 5us + 2us + 1us);
  CHECK(common(apart, {}) == 0us);
}
