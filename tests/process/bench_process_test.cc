#include "tests/bench/process.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"

// The programs that ddprun-bench measures leave nothing behind.
using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("a launcher under measurement leaves no worker behind, whether it stops them or not") {
  const std::string launcher = GENERATE("exec sleep 1000", "setsid sleep 1000 & wait", "setsid sleep 1000 & exit 0");
  CAPTURE(launcher);
  const Marker marker;
  {
    auto environment = Environment::capture();
    for (const auto& [name, value] : marker.variables()) environment.set(name, value);
    const bench::Process process({"/bin/sh", "-c", launcher},
                                 {.environment = environment.entries(), .own_group = true});
    const auto soon = Deadline::in(std::chrono::seconds(20));
    while (marker.process_named("sleep") < 0 && !soon.expired()) std::this_thread::yield();
    REQUIRE(marker.process_named("sleep") > 0);
  }
  CHECK(marker.processes() == 0);
}
