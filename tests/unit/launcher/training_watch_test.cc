#include "launcher/agent/training_watch.h"

#include <string>
#include <unistd.h>

#include <boost/asio/io_context.hpp>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// A record of this process, which trains.
TrainingRecord training() {
  TrainingRecord record;
  record.pid = ::getpid();
  record.time_ms = 2000;
  record.wants_standby = 1;
  record.first_step_ms = 1000;
  return record;
}

}  // namespace

TEST_CASE("workers want a process to stand by once all of them have made a step and say so") {
  boost::asio::io_context loop;
  const TrainingWatch watch(loop, 2);
  REQUIRE_FALSE(watch.address().empty());
  TrainingPublisher first(watch.address() + ":0"), second(watch.address() + ":1");
  const std::vector<WorkerReport> workers{{.local_rank = 0, .pid = ::getpid()}, {.local_rank = 1, .pid = ::getpid()}};
  first.publish(training());
  CHECK_FALSE(watch.want_standby(workers));  // the second has published nothing

  auto record = training();
  record.first_step_ms = 0;  // it waits for others in a new process group
  second.publish(record);
  CHECK_FALSE(watch.want_standby(workers));

  record = training();
  record.wants_standby = 0;
  second.publish(record);
  CHECK_FALSE(watch.want_standby(workers));

  second.publish(training());
  CHECK(watch.want_standby(workers));

  auto replaced = workers;
  replaced[1].pid = ::getppid();  // the replacement of the process that published the record
  CHECK_FALSE(watch.want_standby(replaced));
}
