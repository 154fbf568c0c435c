#include "worker/comm/backends/staged/staged_messages.h"

#include <iterator>
#include <utility>

namespace ddprun::comm {
namespace {

constexpr std::size_t most_unused = 8;  // pieces of memory that are kept

bool is_send(const StagedMessage& message) {
  return message.task.call.operation.kind == OpKind::send;
}

// Returns the message on memory of the host.
Call on_host(const StagedMessage& message, std::byte* memory) {
  Call call = message.task.call;
  call.options.blocking = false;
  call.options.after = nullptr;
  const auto move = [&](auto& span) {
    span.device = host_memory;
    if (span.data) span.data = memory;
  };
  is_send(message) ? move(call.input) : move(call.output);
  return call;
}

}  // namespace

std::unique_ptr<StagingMemory> StagingPool::take() {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) return std::make_unique<StagingMemory>(device_);
  auto memory = std::move(unused_.back());
  unused_.pop_back();
  return memory;
}

void StagingPool::give_back(std::unique_ptr<StagingMemory> memory) {
  const std::lock_guard lock(mutex_);
  if (unused_.size() < most_unused) unused_.push_back(std::move(memory));
}

StagedMessage stage_message(ProcessGroup& host, StagingPool& pool, StagedTask task) {
  StagedMessage message{std::move(task), pool.take()};
  const auto& call = message.task.call;
  auto* const memory = message.memory->at_least(is_send(message) ? call.input.bytes() : call.output.bytes());
  if (!is_send(message)) message.in_group = host.start(on_host(message, memory));
  return message;
}

void StagedMessages::add(StagedMessage message) {
  const auto deadline = deadline_after(message.task.timeout);
  auto& added = messages_.emplace_back(Running{std::move(message), nullptr, deadline});
  const auto& [task, memory, in_group] = added.message;
  const auto& events = task.call.options.events;
  if (in_group) {
    to_device_.follow(*task.ready);
    return to_device_.record(events.begun);
  }
  to_host_.follow(*task.ready);
  to_host_.record(events.begun);
  to_host_.to_host(memory->at_least(0), task.call.input.data, task.call.input.bytes());
  to_host_.record(events.ended);
  added.copied = to_host_.mark();
}

bool StagedMessages::advance() {
  bool progress = false, may_send = true;
  for (auto each = messages_.begin(); each != messages_.end();) {
    progress |= advance(*each, may_send);
    may_send = may_send && (!is_send(each->message) || each->message.in_group);
    each = each->message.task.work->done() ? messages_.erase(each) : std::next(each);
  }
  return progress;
}

bool StagedMessages::advance(Running& running, bool may_send) {
  auto& [task, memory, in_group] = running.message;
  if (running.copied) {
    if (!is_copied(running) || (is_send(running.message) && !may_send)) return false;
    running.copied = nullptr;
    if (!is_send(running.message)) return finish(running), true;
    in_group = host_.start(on_host(running.message, memory->at_least(0)));
    return true;
  }
  if (!in_group->done()) return false;
  in_group->wait();  // throws its error
  if (is_send(running.message)) return finish(running), true;
  copy_back(running);
  return true;
}

void StagedMessages::copy_back(Running& running) {
  const auto& [task, memory, in_group] = running.message;
  to_device_.to_device(task.call.output.data, memory->at_least(0), task.call.output.bytes());
  to_device_.record(task.call.options.events.ended);
  running.copied = to_device_.mark();
  running.copied_by = deadline_after(task.timeout);
}

void StagedMessages::complete_finished() noexcept try {
  const auto is_finished = [](const Running& each) { return each.message.in_group && !each.message.in_group->error(); };
  for (const auto& each : messages_) await_end(each.message.in_group);
  for (auto& each : messages_)
    if (is_finished(each) && !is_send(each.message) && !each.copied) copy_back(each);
  if (!to_device_.await_idle(Deadline::in(copies_bound))) return;
  for (auto each = messages_.begin(); each != messages_.end();) {
    const bool is_complete = is_finished(*each) && (is_send(each->message) || each->copied->reached());
    if (is_complete) finish(*each);
    each = is_complete ? messages_.erase(each) : std::next(each);
  }
} catch (const std::exception&) {
  // The device has failed, too: cancel() ends what is left.
}

bool StagedMessages::is_copied(Running& running) const {
  if (running.copied->reached()) return true;
  const auto& task = running.message.task;
  if (running.copied_by.expired()) throw_copy_timeout(task.call, task.timeout);
  return false;
}

void StagedMessages::finish(Running& running) {
  auto& [task, memory, in_group] = running.message;
  pool_.give_back(std::move(memory));
  task.complete(in_group->source());
}

void StagedMessages::cancel(const Error& cause) noexcept {
  for (const auto& each : messages_) await_end(each.message.in_group);
  const auto deadline = Deadline::in(copies_bound);
  const bool copied_to_host = to_host_.await_idle(deadline);
  const bool idle = to_device_.await_idle(deadline) && copied_to_host;
  for (auto& each : std::exchange(messages_, {})) {
    if (!idle && each.message.memory) each.message.memory->abandon();
    each.message.task.fail(cause);
  }
}

}  // namespace ddprun::comm
