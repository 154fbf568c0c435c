#include "worker/comm/backends/mpi/bounded_call.h"

#include <ctime>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/environment.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/log.h"
#include "worker/comm/backends/mpi/mpi_environment.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/error_file.h"

namespace ddprun::comm {

BoundedCall::BoundedCall(std::string call, std::chrono::milliseconds bound)
    : call_(std::move(call)), bound_(bound), thread_(start_signal_free_thread([this] { watch(); })) {}

BoundedCall::~BoundedCall() {
  {
    const std::lock_guard lock(mutex_);
    returned_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BoundedCall::watch() {
  const auto deadline = deadline_after(bound_);
  std::unique_lock lock(mutex_);
  while (!returned_) {
    if (deadline.expired()) give_up();
    changed_.wait_until(lock, *deadline.when());
  }
}

void BoundedCall::give_up() const {
  const auto environment = Environment::capture();
  const auto message = fmt::format(
      "rank {} of MPI's job (pid {} on host {}): {} has waited {:g} s for other ranks, which have not called it: one "
      "may have ended, or never started",
      mpi_rank_of(environment).value_or("?"), ::getpid(), local_host_name(), call_,
      std::chrono::duration<double>(bound_).count());
  log::error("{}", message);
  if (const auto path = environment.get("TORCHELASTIC_ERROR_FILE").value_or(""); !path.empty()) {
    try {
      write_error_file(path, message, std::time(nullptr), FailureKind::consequence);
    } catch (const std::exception& error) {
      log::warn("the error file could not be written: {}", error.what());
    }
  }
  ::_exit(exit_fault);
}

}  // namespace ddprun::comm
