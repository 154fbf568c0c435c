#include "worker/trainer/preemption.h"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <poll.h>
#include <pthread.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "common/atomic_file.h"
#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/unique_fd.h"
#include "worker/trainer/config/preempt_signal.h"

namespace ddprun::trainer {
namespace {

sigset_t set_of(int signal_number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  return set;
}

// Set for the fork handler, which takes no argument; 0: nothing to unblock.
std::atomic<int> blocked_for_children{0};
static_assert(std::atomic<int>::is_always_lock_free);

void unblock_in_child() {
  const int signal_number = blocked_for_children.exchange(0);
  if (signal_number == 0) return;
  const auto set = set_of(signal_number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// Blocks a signal in this thread, and in the threads it starts, for a scope. A signal that is pending at the end is
// discarded: its default action would end the process.
class BlockedSignal {
 public:
  explicit BlockedSignal(int signal_number) : set_(set_of(signal_number)) {
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
    if (sigismember(&before_, signal_number) == 1) return;  // children had it blocked before, too
    static const int registered = ::pthread_atfork(nullptr, nullptr, unblock_in_child);
    if (registered == 0) blocked_for_children = signal_number;
  }
  ~BlockedSignal() {
    blocked_for_children = 0;
    const timespec at_once{};
    while (::sigtimedwait(&set_, nullptr, &at_once) > 0) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignal(const BlockedSignal&) = delete;
  BlockedSignal& operator=(const BlockedSignal&) = delete;

  const sigset_t& set() const { return set_; }

 private:
  const sigset_t set_;
  sigset_t before_;
};

// Returns the value of "key:\t..." in the text of /proc/<pid>/status.
std::string_view field(std::string_view status, std::string_view key) {
  const auto at = status.find(key);
  if (at == std::string_view::npos) return {};
  const auto begin = status.find_first_not_of(" \t", at + key.size());
  return begin == std::string_view::npos ? std::string_view{} : status.substr(begin, status.find('\n', begin) - begin);
}

bool blocks(std::string_view status, int signal_number) {
  const auto text = field(status, "\nSigBlk:");
  std::uint64_t mask = 0;
  std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return (mask >> (signal_number - 1) & 1) != 0;
}

// The kernel delivers a signal to any thread that does not block it, where its default action would end the process.
void check_that_all_threads_block(int signal_number) {
  std::error_code unreadable;
  std::filesystem::directory_iterator task("/proc/self/task", unreadable);
  for (; !unreadable && task != std::filesystem::directory_iterator(); task.increment(unreadable)) {
    std::string status;
    try {
      status = read_whole_file((task->path() / "status").string());
    } catch (const Error&) {
      continue;  // the thread has ended
    }
    if (blocks(status, signal_number)) continue;
    throw make_error(
        Errc::usage,
        "SIG{} cannot be received as a preemption request: thread {} ({}) started earlier and does not block "
        "it. Make the PreemptionListener before anything starts a thread, or choose the signal none",
        ::sigabbrev_np(signal_number), task->path().filename().string(), field(status, "Name:"));
  }
}

UniqueFd checked(int descriptor, const char* what) {
  if (descriptor < 0) throw make_error(Errc::io, "cannot receive preemption requests: {}: {}", what, errno_text(errno));
  return UniqueFd(descriptor);
}

template <class Body>
std::thread start_reader(Body body) {
  try {
    return start_signal_free_thread(std::move(body));
  } catch (const std::system_error& error) {
    throw make_error(Errc::io, "cannot receive preemption requests: cannot start a thread: {}", error.what());
  }
}

}  // namespace

class PreemptionListener::Reader {
 public:
  explicit Reader(int signal_number)
      : blocked_(signal_number),
        signals_(checked(::signalfd(-1, &blocked_.set(), SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")),
        stop_(checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
    check_that_all_threads_block(signal_number);
    thread_ = start_reader([this] { run(); });
  }
  ~Reader() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::int64_t requests() const { return requests_.load(std::memory_order_relaxed); }

 private:
  void run() {
    pollfd events[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (events[1].revents == 0) {
      signalfd_siginfo request;
      if (::poll(events, 2, -1) > 0 && ::read(signals_.get(), &request, sizeof(request)) == sizeof(request))
        requests_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  const BlockedSignal blocked_;
  const UniqueFd signals_;
  const UniqueFd stop_;
  std::atomic<std::int64_t> requests_{0};
  std::thread thread_;  // the last member: runs on all the above
};

PreemptionListener::PreemptionListener(const std::string& name) {
  if (const int signal_number = preempt_signal_number(name); signal_number != 0)
    reader_ = std::make_unique<Reader>(signal_number);
}

PreemptionListener::~PreemptionListener() = default;

std::int64_t PreemptionListener::requests() const {
  return reader_ ? reader_->requests() : 0;
}

}  // namespace ddprun::trainer
