#include "worker/trainer/config/recovery_settings.h"

#include <string>

#include "common/config/config_file.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

std::string mode_of(const std::string& text) {
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  apply(settings, parse_config(text, "t.cfg"), Origin::file);
  settle_recovery(settings, config);
  CHECK(why_not_in_process(config).empty());
  return config.recovery.mode;
}

}  // namespace

TEST_CASE("with a hook that keeps an error the job is restarted, unless copies of the parts have it, or it is set") {
  for (const std::string hook : {"int4", "topk", "powersgd", "batched_powersgd"}) {
    CAPTURE(hook);
    const auto text = "[parallel]\nhook = " + hook + "\n";
    CHECK(mode_of(text) == "restart");
    CHECK(mode_of(text + "pipeline = 2\nmicro_batches = 2\n") == "restart");
    CHECK(mode_of(text + "zero = 1\n") == "in_process");
    CHECK(mode_of(text + "[recovery]\nmode = in_process\n") == "in_process");
  }
  CHECK(mode_of("[parallel]\nhook = fp16\n") == "in_process");
}
