#include "launcher/doctor/probe_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/pipe.h"
#include "common/printable.h"
#include "launcher/cli/worker_command.h"
#include "launcher/doctor/probe.h"

namespace ddprun::doctor {

ProbeProcess::ProbeProcess(const std::vector<std::string>& command, const Environment& environment, Guardian& guardian)
    : guardian_(guardian) {
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  const auto entries = environment.entries();
  process_ = start_process({.executable = find_program(command.front(), environment),
                            .arguments = command,
                            .environment = entries,
                            .in = in.reader.get(),
                            .out = out.writer.get(),
                            .err = err.writer.get()},
                           guardian_);
  guardian_.confirm_groups();
  in_ = std::move(in.writer);
  out_ = std::move(out.reader);
  err_ = std::move(err.reader);
}

ProbeProcess::~ProbeProcess() {
  ::kill(-process_.pid, SIGKILL);
  ::waitpid(process_.pid, nullptr, 0);
  guardian_.remove_groups({&process_.pid, 1});
}

void ProbeProcess::send(const std::string& line) const {
  const auto text = line + "\n";
  static_cast<void>(::write(in_.get(), text.data(), text.size()));  // shorter than a pipe's buffer
}

std::optional<std::string> ProbeProcess::take_message() {
  const auto end = messages_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  auto message = messages_.substr(message_prefix.size(), end - message_prefix.size());
  messages_.erase(0, end + 1);
  return message;
}

std::string ProbeProcess::last_words() const {
  auto text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const auto line = text.substr(text.rfind('\n') + 1);
  if (const int error = exec_error(process_); error != 0) return "cannot be executed: " + errno_text(error);
  return line.empty() ? "it ended without a word" : printable(line);
}

void ProbeProcess::read(UniqueFd& from, std::string& into) {
  char block[4096];
  const auto got = ::read(from.get(), block, sizeof(block));
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return from.reset();
  into.append(block, static_cast<std::size_t>(got));
}

// Removes whole lines without the prefix.
void ProbeProcess::drop_other_lines() {
  for (std::size_t begin = 0;;) {
    const auto end = messages_.find('\n', begin);
    if (end == std::string::npos) return;
    if (messages_.compare(begin, message_prefix.size(), message_prefix) == 0)
      begin = end + 1;
    else
      messages_.erase(begin, end + 1 - begin);
  }
}

void ProbeProcess::wait_for_messages(const std::vector<ProbeProcess*>& probes, Deadline deadline) {
  for (;;) {
    std::vector<pollfd> watched;
    for (const auto* probe : probes) {
      watched.push_back({probe->waits() ? probe->out_.get() : -1, POLLIN, 0});
      watched.push_back({probe->waits() ? probe->err_.get() : -1, POLLIN, 0});
    }
    if (std::none_of(probes.begin(), probes.end(), [](const auto* probe) { return probe->waits(); })) return;
    const int ready = ::poll(watched.data(), watched.size(), deadline.poll_timeout_ms());
    if (ready == 0) return;
    for (std::size_t i = 0; ready > 0 && i < probes.size(); ++i) {
      // Standard error is read first: it has the reason why standard output ends.
      if (watched[2 * i + 1].revents != 0) read(probes[i]->err_, probes[i]->errors_);
      if (watched[2 * i].revents != 0) read(probes[i]->out_, probes[i]->messages_);
      probes[i]->drop_other_lines();
    }
  }
}

}  // namespace ddprun::doctor
