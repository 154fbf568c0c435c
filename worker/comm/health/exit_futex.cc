#include "worker/comm/health/exit_futex.h"

#include <cerrno>
#include <cstddef>
#include <limits>
#include <linux/futex.h>
#include <mutex>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/log.h"

namespace ddprun::comm {
namespace {

// The shared memory of a process's futex.
struct ExitWord {
  robust_list node;                 // the entry in the owner's list, by which the kernel finds the word
  std::atomic<std::uint32_t> word;  // the owner's thread id and FUTEX_WAITERS, with FUTEX_OWNER_DIED after its end
  ProcessIdentity process;
};

ExitWord& word_in(const SharedSegment& memory) {
  return *reinterpret_cast<ExitWord*>(memory.data());
}

void wake_all(const std::atomic<std::uint32_t>& word, int flags) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | flags, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

futex_waitv waiter(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint32_t flags) {
  futex_waitv result{};
  result.val = value;
  result.uaddr = reinterpret_cast<std::uintptr_t>(&word);
  result.flags = FUTEX_32 | flags;
  return result;
}

}  // namespace

std::shared_ptr<ExitFutex> ExitFutex::of_this_process() {
  struct Shared {
    std::mutex mutex;
    pid_t pid = 0;  // of the process that has made it
    std::weak_ptr<ExitFutex> futex;
  };
  static Shared shared;
  const std::lock_guard lock(shared.mutex);
  auto futex = shared.futex.lock();
  if (futex && shared.pid == ::getpid()) return futex;
  try {
    futex = std::make_shared<ExitFutex>();
  } catch (const Error& error) {
    log::debug("other ranks learn later of this process's end: {}", error.what());
    return nullptr;
  }
  shared.futex = futex;
  shared.pid = ::getpid();
  return futex;
}

ExitFutex::ExitFutex() : memory_(SharedSegment::create(sizeof(ExitWord))) {
  new (memory_.data()) ExitWord{.node = {}, .word = 0, .process = ProcessIdentity::own()};
  owner_ = start_signal_free_thread([this] { own(); });
}

ExitFutex::~ExitFutex() {
  given_up_ = 1;
  wake_all(given_up_, FUTEX_PRIVATE_FLAG);
  owner_.join();
}

// A process that reads the word before its owner has set it waits for any change.
void ExitFutex::own() {
  auto& shared = word_in(memory_);
  robust_list_head list{};
  list.list.next = &shared.node;
  list.futex_offset = offsetof(ExitWord, word) - offsetof(ExitWord, node);
  shared.node.next = &list.list;
  ::syscall(SYS_set_robust_list, &list, sizeof list);
  shared.word = static_cast<std::uint32_t>(::syscall(SYS_gettid)) | FUTEX_WAITERS;
  while (given_up_ == 0) ::syscall(SYS_futex, &given_up_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  list.list.next = &list.list;
}

ExitFutexMonitor::ExitFutexMonitor(const std::vector<Process>& processes, OnEnd on_end) : on_end_(std::move(on_end)) {
  for (const auto& process : processes)
    if (watched_.size() + 1 < FUTEX_WAITV_MAX) watch(process);
  if (!watched_.empty()) thread_ = start_signal_free_thread([this] { run(); });
}

ExitFutexMonitor::~ExitFutexMonitor() {
  if (!thread_.joinable()) return;
  stop_ = 1;
  wake_all(stop_, FUTEX_PRIVATE_FLAG);
  thread_.join();
}

// A later process may have the same id, and another file at the same address.
void ExitFutexMonitor::watch(const Process& process) {
  try {
    auto memory = SharedSegment::open(process.address, sizeof(ExitWord));
    if (word_in(memory).process == process.identity) watched_.emplace(process.rank, std::move(memory));
  } catch (const Error& error) {
    log::debug("cannot watch the futex of rank {}'s process: {}", process.rank, error.what());
  }
}

// The kernel wakes one of the threads that wait for a word, which wakes the others.
void ExitFutexMonitor::run() {
  while (stop_ == 0) {
    std::vector<futex_waitv> waiters{waiter(stop_, 0, FUTEX_PRIVATE_FLAG)};
    for (auto each = watched_.begin(); each != watched_.end();) {
      const auto& word = word_in(each->second).word;
      const auto value = word.load();
      if ((value & FUTEX_OWNER_DIED) == 0) {
        waiters.push_back(waiter(word, value, 0));
        ++each;
        continue;
      }
      wake_all(word, 0);
      on_end_(each->first);
      each = watched_.erase(each);
    }
    if (watched_.empty()) return;
    if (::syscall(SYS_futex_waitv, waiters.data(), waiters.size(), 0, nullptr, 0) >= 0) continue;
    if (errno == EAGAIN || errno == EINTR) continue;
    log::debug("no longer watching for the end of processes by their futexes: {}", errno_text(errno));
    return;
  }
}

}  // namespace ddprun::comm
