#include "worker/comm/spawn.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <ranges>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "common/deadline.h"
#include "common/error.h"
#include "common/pipe.h"
#include "common/unique_fd.h"
#include "rendezvous/store/store_server_thread.h"
#include "worker/comm/health/group_failure.h"

namespace ddprun {
namespace {

// The time to wait, after a rank failed, for the failure of the rank that caused it.
constexpr std::chrono::milliseconds root_cause_delay{1'000};

struct Rank {
  int number = 0;
  pid_t pid = -1;
  UniqueFd ended;   // pidfd: readable once the process has ended
  UniqueFd port;    // carries the store's port to the rank
  UniqueFd report;  // carries its failure from the rank
};

struct Failure {
  int rank = 0;
  comm::GroupFailure cause;
};

int count_threads() {
  int threads = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++threads;
  return threads;
}

// Some libraries keep idle threads and end them in fork handlers (OpenBLAS starts its pool before main). Forking a
// child that exits at once runs those handlers, so that the threads that remain are those that a fork would harm.
void run_fork_handlers() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void check_can_fork(int n) {
  if (n < 1) throw make_error(Errc::usage, "spawn: {} ranks; there must be at least 1", n);
  if (count_threads() == 1) return;
  run_fork_handlers();
  if (const int threads = count_threads(); threads > 1) {
    throw make_error(Errc::usage, "spawn: this process has {} threads already; call spawn before anything starts one",
                     threads);
  }
}

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto count = ::write(fd, text.data() + done, text.size() - done);
    if (count <= 0 && errno != EINTR) return;  // the reader has closed its end
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const auto count = ::read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

// Runs in the process of a rank.
[[noreturn]] void run_rank(WorkerEnv env, pid_t parent, const UniqueFd& port, const UniqueFd& report,
                           const std::function<void(const WorkerEnv&)>& function) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
  if (::read(port.get(), &env.master_port, sizeof(env.master_port)) != sizeof(env.master_port)) ::_exit(1);
  int code = 0;
  try {
    function(env);
  } catch (const Error& error) {
    write_all(report.get(), comm::encode(comm::GroupFailure{error.code(), error.what()}));
    code = 1;
  } catch (const std::exception& error) {
    write_all(report.get(), comm::encode(comm::GroupFailure{Errc::internal, error.what()}));
    code = 1;
  }
  std::fflush(nullptr);
  ::_exit(code);  // not exit(): the parent's exit handlers are not for this process
}

class Ranks {
 public:
  Ranks(int n, const std::function<void(const WorkerEnv&)>& function);
  ~Ranks();
  void start(std::uint16_t port);
  // Returns the failures, in the order in which they were seen, once all ranks have ended.
  std::vector<Failure> wait_for_all(std::chrono::milliseconds grace);

 private:
  void fork_rank(int number, int n, const std::function<void(const WorkerEnv&)>& function);
  std::vector<std::size_t> wait_for_ends(const Deadline& deadline);
  std::optional<Failure> reap(Rank& rank);
  void signal_all(int number);

  std::vector<Rank> running_;
};

Ranks::Ranks(int n, const std::function<void(const WorkerEnv&)>& function) {
  std::fflush(nullptr);  // otherwise every rank would write this process's buffered output
  for (int number = 0; number < n; ++number) fork_rank(number, n, function);
}

Ranks::~Ranks() {
  signal_all(SIGKILL);
  for (auto& rank : running_) ::waitpid(rank.pid, nullptr, 0);
}

void Ranks::fork_rank(int number, int n, const std::function<void(const WorkerEnv&)>& function) {
  auto port = make_pipe();
  auto report = make_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw make_error(Errc::io, "cannot fork rank {}: {}", number, errno_text(errno));
  if (pid == 0) {
    for (auto& sibling : running_) sibling = Rank{};  // closes the parent's ends of their pipes
    port.writer.reset();
    report.reader.reset();
    WorkerEnv env;
    env.rank = env.local_rank = number;
    env.world_size = env.local_world_size = n;
    env.use_agent_store = true;
    run_rank(std::move(env), parent, port.reader, report.writer, function);
  }
  running_.push_back({number, pid, {}, std::move(port.writer), std::move(report.reader)});
  running_.back().ended = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!running_.back().ended) throw make_error(Errc::io, "cannot watch rank {}: {}", number, errno_text(errno));
}

void Ranks::start(std::uint16_t port) {
  std::string bytes(sizeof(port), '\0');
  std::memcpy(bytes.data(), &port, sizeof(port));
  for (auto& rank : running_) write_all(rank.port.get(), bytes);
}

std::vector<std::size_t> Ranks::wait_for_ends(const Deadline& deadline) {
  std::vector<pollfd> waiting;
  for (const auto& rank : running_) waiting.push_back({rank.ended.get(), POLLIN, 0});
  while (::poll(waiting.data(), waiting.size(), deadline.poll_timeout_ms()) < 0 && errno == EINTR) {
  }
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].revents != 0) ended.push_back(i);
  }
  return ended;
}

std::optional<Failure> Ranks::reap(Rank& rank) {
  int status = 0;
  while (::waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
  }
  const auto report = read_all(rank.report.get());
  if (!report.empty()) return Failure{rank.number, comm::decode_group_failure(report)};
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));  // real-time signals have none
    return Failure{rank.number,
                   {Errc::peer_lost, fmt::format("ended by signal {}{}", WTERMSIG(status),
                                                 name ? fmt::format(" ({})", name) : std::string())}};
  }
  if (WEXITSTATUS(status) != 0) {
    return Failure{rank.number, {Errc::internal, fmt::format("exited with code {}", WEXITSTATUS(status))}};
  }
  return std::nullopt;
}

void Ranks::signal_all(int number) {
  for (const auto& rank : running_) ::kill(rank.pid, number);
}

std::vector<Failure> Ranks::wait_for_all(std::chrono::milliseconds grace) {
  std::vector<Failure> failures;
  auto deadline = Deadline::never();
  int next_signal = 0;  // sent when the deadline passes
  while (!running_.empty()) {
    const auto ended = wait_for_ends(deadline);
    for (const auto i : ended | std::views::reverse) {
      auto rank = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      auto failure = reap(rank);
      if (!failure) continue;
      if (next_signal == 0) {
        next_signal = SIGTERM;
        deadline = Deadline::in(root_cause_delay);
      }
      if (next_signal == SIGTERM) failures.push_back(std::move(*failure));  // later ones follow from this signal
    }
    if (!deadline.expired()) continue;
    signal_all(next_signal);
    deadline = next_signal == SIGTERM ? Deadline::in(grace) : Deadline::never();
    next_signal = SIGKILL;
  }
  return failures;
}

// Prefers a rank's own exception to a signal that ended a rank, and that to a lost peer.
const Failure& root_cause(const std::vector<Failure>& failures) {
  for (const auto& failure : failures) {
    const auto code = failure.cause.code;
    if (code != Errc::peer_lost && code != Errc::aborted && code != Errc::connection_lost) return failure;
  }
  for (const auto& failure : failures) {
    if (failure.cause.message.starts_with("ended by signal")) return failure;
  }
  return failures.front();
}

}  // namespace

void spawn(int n, const std::function<void(const WorkerEnv&)>& function, const SpawnOptions& options) {
  check_can_fork(n);
  Ranks ranks(n, function);
  const StoreServerThread server({.host = "127.0.0.1"});
  ranks.start(server.port());
  const auto failures = ranks.wait_for_all(options.grace);
  if (failures.empty()) return;
  const auto& root = root_cause(failures);
  throw make_error(root.cause.code, "rank {} failed: {}", root.rank, root.cause.message);
}

}  // namespace ddprun
