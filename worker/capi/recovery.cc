#include "worker/recovery/recovery.h"

#include <chrono>
#include <memory>

#include "common/environment.h"
#include "common/error.h"
#include "worker/capi/group_config.h"
#include "worker/capi/handles.h"
#include "worker/comm/error_file.h"

using ddprun::capi::guarded;
using ddprun::capi::text_of;

struct ddprun_recovery {
  ddprun_recovery(const ddprun::InitOptions& options, std::chrono::milliseconds join_timeout)
      : recovery(options, join_timeout) {}

  // Returns the handle of a group of the recovery's.
  ddprun_group* show(ddprun::ProcessGroup& of_recovery) {
    group.group = {std::shared_ptr<void>(), &of_recovery};
    return &group;
  }

  ddprun::Recovery recovery;
  ddprun_group group;  // the present one
};

namespace {

constexpr std::chrono::seconds default_join_timeout{60};

ddprun::InitOptions init_options(const ddprun_group_options& from) {
  ddprun::InitOptions to{.backend = text_of(from.backend, "auto"),
                         .config = ddprun::capi::group_config(from),
                         .env = ddprun::WorkerEnv::from(ddprun::Environment::capture())};
  if (!to.env.recovery)
    throw ddprun::make_error(ddprun::Errc::usage,
                             "no rank of this job is replaced alone: that needs several workers of ddprun, "
                             "--max_restarts above 0, the rendezvous c10d, and not --restart=all");
  return to;
}

std::chrono::milliseconds join_timeout(std::int64_t milliseconds) {
  return milliseconds > 0 ? std::chrono::milliseconds(milliseconds) : default_join_timeout;
}

}  // namespace

ddprun_recovery* ddprun_recovery_begin(const ddprun_group_options* options, int64_t join_timeout_ms,
                                       ddprun_error* error) {
  ddprun_recovery* recovery = nullptr;
  guarded(error, [&] { recovery = new ddprun_recovery(init_options(*options), join_timeout(join_timeout_ms)); });
  return recovery;
}
void ddprun_recovery_free(ddprun_recovery* recovery) {
  delete recovery;
}

int32_t ddprun_recovery_is_replacement(const ddprun_recovery* recovery) {
  return recovery->recovery.is_replacement();
}
ddprun_group* ddprun_recovery_form_first(ddprun_recovery* recovery, ddprun_error* error) {
  ddprun_group* group = nullptr;
  guarded(error, [&] { group = recovery->show(recovery->recovery.form_first()); });
  return group;
}
uint64_t ddprun_recovery_generation(const ddprun_recovery* recovery) {
  return recovery->recovery.generation();
}
int32_t ddprun_recovery_announce(ddprun_recovery* recovery, ddprun_error* error) {
  return guarded(error, [&] { recovery->recovery.announce(); });
}
void ddprun_recovery_on_applied(ddprun_recovery* recovery, int64_t step) {
  recovery->recovery.on_applied(step);
}

ddprun_group* ddprun_recovery_recover(ddprun_recovery* recovery, const char* reason, ddprun_copy_state copy,
                                      void* context, int64_t* step, ddprun_error* error) {
  ddprun_group* next = nullptr;
  const auto copy_state = [&](ddprun::ProcessGroup& group, const ddprun::Catchup& catchup, bool receives) {
    const auto code = copy(context, recovery->show(group), catchup.step, catchup.source, receives);
    if (code == DDPRUN_OK) return catchup.step;
    if (const auto failure = group.failure()) throw ddprun::Error(*failure);
    throw ddprun::make_error(ddprun::Errc::internal, "the copy of the state failed with code {}", code);
  };
  guarded(error, [&] {
    if (const auto resumed = recovery->recovery.recover(text_of(reason), copy_state)) {
      next = recovery->show(resumed->group);
      *step = resumed->catchup.step;
    }
  });
  return next;
}
void ddprun_recovery_finish(ddprun_recovery* recovery) {
  recovery->recovery.finish();
}

int32_t ddprun_is_consequence(int32_t code) {
  return code > DDPRUN_OK && code < DDPRUN_WRONG_TYPE && ddprun::is_consequence(static_cast<ddprun::Errc>(code - 1));
}
