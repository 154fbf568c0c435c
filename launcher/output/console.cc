#include "launcher/output/console.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "launcher/output/pseudo_terminal.h"

namespace ddprun {
namespace {

// The handler only interrupts a blocking write when the console is being destroyed.
void no_op(int) {}

void install_wake_signal() {
  struct sigaction action {};
  action.sa_handler = no_op;  // without SA_RESTART: write() returns EINTR
  ::sigaction(SIGRTMIN, &action, nullptr);
}

bool same_device(int one, int other) {
  struct stat first {};
  struct stat second {};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 && first.st_rdev == second.st_rdev;
}

std::size_t index_of(Console::Stream stream) {
  return stream == Console::Stream::out ? 0 : 1;
}

}  // namespace

struct Console::Impl {
  struct Item {
    Stream stream;
    std::string text;
  };

  int descriptors[2];
  std::shared_ptr<Screen> screens[2];  // null: not a terminal
  std::function<void()> on_writable;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  std::size_t queued_bytes = 0;
  std::size_t written_bytes = 0;
  bool was_full = false;
  bool busy = false;
  bool stopping = false;
  bool finished = false;
  bool started = false;
  bool failed[2] = {false, false};  // a text could not be written
  bool gone[2] = {false, false};    // the reader has closed it
  std::thread thread;

  // Called for the first text, so that a job that writes nothing has no thread.
  void start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigdelset(&all, SIGRTMIN);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    install_wake_signal();
    thread = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    started = true;
  }

  void find_screens() {
    for (int i = 0; i < 2; ++i)
      if (window_size(descriptors[i])) screens[i] = std::make_shared<Screen>();
    if (screens[0] && screens[1] && same_device(descriptors[0], descriptors[1])) screens[1] = screens[0];
  }

  // The stream's screen, updated to the terminal's current size; null when it is not a terminal.
  Screen* screen(Stream stream) {
    const auto i = index_of(stream);
    if (screens[i]) screens[i]->resize(window_size(descriptors[i]).value_or(WindowSize{}));
    return screens[i].get();
  }

  // REQUIRES: the mutex is held.
  void put(Stream stream, std::string text) {
    if (text.empty()) return;
    if (!started) start();
    queued_bytes += text.size();
    if (queued_bytes >= high_water_bytes) was_full = true;
    queue.push_back({stream, std::move(text)});
    changed.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) break;
      auto item = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      write_all(item);
      lock.lock();
      busy = false;
      queued_bytes -= item.text.size();
      const bool writable = was_full && queued_bytes <= high_water_bytes / 2;
      if (writable) was_full = false;
      changed.notify_all();
      if (writable && on_writable) {
        lock.unlock();
        on_writable();
        lock.lock();
      }
    }
    finished = true;
    changed.notify_all();
  }

  void write_all(const Item& item) {
    const int fd = descriptors[index_of(item.stream)];
    std::string_view rest = item.text;
    while (!rest.empty()) {
      const auto got = ::write(fd, rest.data(), rest.size());
      const int cause = got < 0 ? errno : 0;
      if (cause == EAGAIN) wait_writable(fd);
      if (cause != 0 && cause != EAGAIN && cause != EINTR) return record_error(item.stream, cause);
      if (got > 0) rest.remove_prefix(static_cast<std::size_t>(got));
      if (!record_written(got > 0 ? static_cast<std::size_t>(got) : 0)) return;
    }
  }

  // Output that cannot be written must not stop the job.
  void record_error(Stream stream, int cause) {
    const auto i = index_of(stream);
    const bool reader_gone = cause == EPIPE || (cause == EIO && screens[i]);  // EIO: the terminal was hung up
    {
      const std::lock_guard lock(mutex);
      if (reader_gone) gone[i] = true;
      if (reader_gone || std::exchange(failed[i], true)) return;
    }
    if (stream == Stream::out) log::error("cannot write to standard output: {}", errno_text(cause));
  }

  // Returns false when the console is being destroyed.
  bool record_written(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    written_bytes += bytes;
    changed.notify_all();
    return !stopping;
  }

  static void wait_writable(int fd) {
    pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
    ::poll(&entry, 1, 100);
  }
};

Console::Console(int out, int err, std::function<void()> on_writable, bool plain) : impl_(std::make_unique<Impl>()) {
  impl_->descriptors[0] = out;
  impl_->descriptors[1] = err;
  impl_->on_writable = std::move(on_writable);
  if (!plain) impl_->find_screens();
}

Console::~Console() {
  std::unique_lock lock(impl_->mutex);
  if (!impl_->started) return;
  impl_->stopping = true;
  impl_->changed.notify_all();
  // A signal may arrive just before the write that it should interrupt, so repeat it until the thread has finished.
  while (!impl_->finished) {
    ::pthread_kill(impl_->thread.native_handle(), SIGRTMIN);
    impl_->changed.wait_for(lock, std::chrono::milliseconds(10));
  }
  lock.unlock();
  impl_->thread.join();
}

void Console::write(Stream stream, std::string text) {
  if (text.empty()) return;
  const std::lock_guard lock(impl_->mutex);
  if (auto* screen = impl_->screen(stream)) text = screen->write(text);
  impl_->put(stream, std::move(text));
}

void Console::update(Stream stream, int source, std::string lines, std::string bars) {
  const std::lock_guard lock(impl_->mutex);
  if (auto* screen = impl_->screen(stream)) lines = screen->update(source, lines, std::move(bars));
  impl_->put(stream, std::move(lines));
}

std::optional<WindowSize> Console::window(Stream stream) const {
  const auto i = index_of(stream);
  return impl_->screens[i] ? window_size(impl_->descriptors[i]) : std::nullopt;
}

bool Console::is_terminal(Stream stream) const {
  return ::isatty(impl_->descriptors[index_of(stream)]) == 1;
}

bool Console::reader_gone(Stream stream) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->gone[index_of(stream)];
}

bool Console::full() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->was_full;
}

bool Console::write_failed() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failed[0] || impl_->failed[1];
}

bool Console::drain(std::chrono::milliseconds without_progress) {
  std::unique_lock lock(impl_->mutex);
  while (!impl_->queue.empty() || impl_->busy) {
    const auto before = impl_->written_bytes;
    const bool moved = impl_->changed.wait_for(lock, without_progress, [&] {
      return impl_->written_bytes != before || (impl_->queue.empty() && !impl_->busy);
    });
    if (!moved) return false;
  }
  return true;
}

}  // namespace ddprun
