#include "worker/trainer/config/checks.h"

#include <fmt/format.h>

#include "common/error.h"
#include "worker/trainer/config/recovery_settings.h"

namespace ddprun::trainer {
namespace {

void check_batch_size(const TrainConfig::Train& t, const Settings& settings) {
  if (t.batch_size == 0 && t.global_batch_size == 0)
    reject(settings, "train.batch_size", "expected a whole number from 1 to 1000000000");
  if (t.batch_size > 0 && t.global_batch_size > 0)
    reject(settings, "train.batch_size",
           fmt::format("train.global_batch_size = {} is given in the same place; give one of the two",
                       t.global_batch_size));
}

// The default value is not a request: it does not apply if recovery in the process is impossible.
void check_recovery(const TrainConfig& c, const Settings& settings) {
  const auto why = why_not_in_process(c);
  const bool asked_for = settings.find("recovery.mode")->source.origin != Origin::fallback;
  if (asked_for && c.recovery.mode == "in_process" && !why.empty()) reject(settings, "recovery.mode", why);
}

}  // namespace

void reject(const Settings& settings, std::string_view key, const std::string& what) {
  const auto* setting = settings.find(key);
  throw make_error(Errc::usage, "{}: {} = {}: {}", setting->source.where, key, setting->print(), what);
}

void check_extents(const Settings& settings, std::string_view key, const std::string& text, bool may_be_empty) {
  try {
    if (parse_extents(text).empty() && !may_be_empty) throw make_error(Errc::usage, "expected at least one size");
  } catch (const Error& e) {
    reject(settings, key, e.what());
  }
}

void validate(const TrainConfig& c, const Settings& settings) {
  check_batch_size(c.train, settings);
  check_model_and_data(c, settings);
  check_optimizer(c, settings);
  check_parallel(c, settings);
  check_recovery(c, settings);
}

}  // namespace ddprun::trainer
