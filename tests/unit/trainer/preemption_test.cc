#include "ddprun/worker/trainer/preemption.h"

#include <csignal>

#include "ddprun/common/error.h"
#include "ddprun/worker/trainer/train_config.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

TEST_CASE("a notice is remembered until the next one is waited for, and its signal ends nothing") {
  {
    const PreemptionNotice notice("USR2");
    CHECK_FALSE(notice.given());
    std::raise(SIGUSR2);
    CHECK(notice.given());
  }
  const PreemptionNotice another("USR2");
  CHECK_FALSE(another.given());
}

TEST_CASE("when nobody waits for a notice any more its signal does what it did before") {
  std::signal(SIGUSR1, SIG_IGN);
  { const PreemptionNotice notice("USR1"); }
  CHECK(std::signal(SIGUSR1, SIG_DFL) == SIG_IGN);
}

TEST_CASE("none takes no signal") {
  const PreemptionNotice notice("none");
  CHECK_FALSE(notice.given());
  CHECK(std::signal(SIGUSR1, SIG_DFL) == SIG_DFL);
}

TEST_CASE("a signal that cannot be a notice is refused, and how one comes decides no bits") {
  CHECK_THROWS_AS(PreemptionNotice("KILL"), Error);
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  CHECK_THROWS_WITH(settings.assign("train.preempt_signal", "KILL", {Origin::command_line, "here"}),
                    Catch::Contains("USR1"));
  CHECK_FALSE(settings_that_decide(settings).contains("train.preempt_signal"));
}
