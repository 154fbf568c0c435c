#include "worker/comm/operations/completion.h"

namespace ddprun::comm {

bool Completion::wait_done(const Deadline& deadline) {
  awaited_ = true;
  std::unique_lock lock(mutex_);
  return wait_until(changed_, lock, deadline, [this] { return done_.load(); });
}

void Completion::throw_unfinished() const {
  throw make_error(Errc::timeout, "{} has not finished by the caller's deadline; it continues", describe(operation_));
}

std::optional<Error> Completion::error() const {
  if (!done_) return std::nullopt;
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
  error_ = std::move(error);
  source_ = source;
  done_ = true;
  changed_.notify_all();
}

Completion* make_completed() {
  auto* const work = new Completion(Operation{});
  work->complete();
  return work;
}

WorkPtr failed_work(const Error& error) {
  auto work = std::make_shared<Completion>(Operation{});
  work->fail(error);
  return work;
}

}  // namespace ddprun::comm
