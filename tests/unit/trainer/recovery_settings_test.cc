#include "worker/trainer/config/recovery_settings.h"

#include <string>

#include "common/config/config_file.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

struct Bound {
  TrainConfig config;
  Settings settings;
  explicit Bound(const std::string& text) {
    bind(settings, config);
    apply(settings, parse_config(text, "t.cfg"), Origin::file);
    settle_recovery(settings, config);
  }
};

std::string mode_of(const std::string& text) {
  const Bound bound(text);
  CHECK(why_not_in_process(bound.config).empty());
  return bound.config.recovery.mode;
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

TEST_CASE("layers of a pipeline may move, but not with a hook that keeps an error") {
  const std::string balanced = "[parallel]\npipeline = 2\nmicro_batches = 2\nbalance = true\n";
  CHECK(mode_of(balanced) == "in_process");
  CHECK(why_not_in_process(Bound(balanced + "hook = topk\n").config) ==
        "with parallel.balance layers of a pipeline move, but not what parallel.hook = topk keeps of them");
}

TEST_CASE("ranks that divide experts keep their processes, but not with a hook that keeps an error") {
  const std::string experts = "[model]\nname = gpt\nexperts = 4\n[data]\nname = text\n[parallel]\nexpert = 2\n";
  CHECK(mode_of(experts + "hook = int8\n") == "in_process");
  CHECK(
      why_not_in_process(Bound(experts + "hook = int4\n").config) ==
      "with parallel.expert what parallel.hook = int4 keeps is of other experts at each of the ranks that would share "
      "it");
}
