#pragma once

#include <memory>
#include <pthread.h>
#include <system_error>
#include <utility>

#include "common/blocked_signals.h"

namespace ddprun {

// Starts a thread that nobody joins, and that blocks all signals. std::thread::detach() reads the thread's memory after
// it has marked the thread as detached, which may have ended by then: a crash with the C library of Debian 12 (glibc
// bug 19951).
//
// Ownership: the thread owns the body. Errors: throws std::system_error if the thread cannot be started; an exception
// of the body ends the process, as with std::thread.
template <class Body>
void start_detached_thread(Body body) {
  auto owned = std::make_unique<Body>(std::move(body));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const auto run = [](void* argument) noexcept -> void* {
    const std::unique_ptr<Body> own(static_cast<Body*>(argument));
    (*own)();
    return nullptr;
  };
  const BlockedSignals blocked;
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, run, owned.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category());
  static_cast<void>(owned.release());
}

}  // namespace ddprun
