#include "ddprun/worker/comm/completion.h"

namespace ddprun::comm {

void Completion::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!wait_until(changed_, lock, deadline, [this] { return done_; })) {
    throw make_error(Errc::timeout, "{} was not complete when the caller's deadline passed; it goes on",
                     describe(operation_));
  }
  if (error_) throw Error(*error_);
}

bool Completion::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::optional<Error> Completion::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int Completion::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

void Completion::complete(int source) {
  finish(std::nullopt, source);
}
void Completion::fail(const Error& error) {
  finish(error);
}

void Completion::finish(std::optional<Error> error, int source) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  error_ = std::move(error);
  source_ = source;
  changed_.notify_all();
}

WorkPtr completed_work() {
  auto work = std::make_shared<Completion>(Operation{});
  work->complete();
  return work;
}

WorkPtr failed_work(const Error& error) {
  auto work = std::make_shared<Completion>(Operation{});
  work->fail(error);
  return work;
}

}  // namespace ddprun::comm
