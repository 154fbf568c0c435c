#include "rendezvous/recovery/store_notice.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <fmt/format.h>

#include "common/error.h"

namespace ddprun {
namespace {

constexpr std::size_t host_words = 32;  // a host name has at most 253 bytes

// Each word is atomic, since a reader may run while the agent writes.
struct StoreSlot {
  std::atomic<std::uint32_t> port;
  std::atomic<std::uint64_t> generation;
  std::atomic<std::uint64_t> host[host_words];
};

// The agent writes the slot that is not read, and then the number of moves, by which readers choose the slot. So an
// agent that ends while it writes leaves a place that can be read. The number is also the futex on which readers sleep.
struct Page {
  std::atomic<std::uint32_t> moves;
  StoreSlot slots[2];
  std::atomic<std::int64_t> waited_ms;  // when a worker has said last that it waits, by the host's monotonic clock
};
static_assert(sizeof(Page) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

Page& at(const SharedPages& pages) {
  return *reinterpret_cast<Page*>(pages.data());
}

std::int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Sleeps while the number is the one seen, at most until the deadline, and no longer than a while, should a wake-up
// come before the sleep.
void sleep(const std::atomic<std::uint32_t>& number, std::uint32_t seen, Deadline deadline) {
  const auto left = std::clamp<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::nanoseconds(0),
                                                         std::chrono::milliseconds(500));
  const timespec longest{.tv_sec = 0, .tv_nsec = static_cast<long>(left.count())};
  ::syscall(SYS_futex, &number, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& number) {
  ::syscall(SYS_futex, &number, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

StoreNotice::StoreNotice() : file_(::memfd_create("ddprun-store-notice", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const auto bytes = SharedPages::page_size();
  if (!file_ || ::fchmod(file_.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    throw make_error(Errc::io, "cannot create {} bytes of shared memory: {}", bytes, errno_text(errno));
  // The size is sealed, so no access can end in SIGBUS.
  ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  page_ = SharedPages(file_.get(), 0, bytes);
}

std::string StoreNotice::address() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

void StoreNotice::set_place(const std::string& host, std::uint16_t port, std::uint64_t generation) {
  std::uint64_t words[host_words] = {};
  if (host.size() >= sizeof words) throw make_error(Errc::usage, "the address '{}' is too long", host);
  std::memcpy(words, host.data(), host.size());
  Page& page = at(page_);
  const auto next = page.moves.load(std::memory_order_relaxed) + 1;
  StoreSlot& slot = page.slots[next % 2];
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees these words sees the last move, too
  slot.port.store(port, std::memory_order_relaxed);
  slot.generation.store(generation, std::memory_order_relaxed);
  for (std::size_t i = 0; i < host_words; ++i) slot.host[i].store(words[i], std::memory_order_relaxed);
  page.moves.store(next, std::memory_order_release);
  wake_all(page.moves);
}

bool StoreNotice::is_awaited(std::chrono::milliseconds within) const {
  const auto waited = at(page_).waited_ms.load(std::memory_order_relaxed);
  return waited > 0 && monotonic_ms() - waited <= within.count();
}

StoreNoticeReader::StoreNoticeReader(const std::string& address) {
  const UniqueFd file(::open(address.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) throw make_error(Errc::io, "cannot open {}: {}", address, errno_text(errno));
  if (::lseek(file.get(), 0, SEEK_END) < static_cast<off_t>(SharedPages::page_size()))
    throw make_error(Errc::io, "{} is not the memory of an agent", address);
  page_ = SharedPages(file.get(), 0, SharedPages::page_size());
}

// Reads again only where the store has moved meanwhile: the slot may be written again then.
StorePlace StoreNoticeReader::read() const {
  const Page& page = at(page_);
  while (true) {
    const auto moves = page.moves.load(std::memory_order_acquire);
    const StoreSlot& slot = page.slots[moves % 2];
    std::uint64_t words[host_words];
    for (std::size_t i = 0; i < host_words; ++i) words[i] = slot.host[i].load(std::memory_order_relaxed);
    const auto port = slot.port.load(std::memory_order_relaxed);
    const auto generation = slot.generation.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (page.moves.load(std::memory_order_relaxed) != moves) continue;
    const auto* text = reinterpret_cast<const char*>(words);
    return {
        .moves = moves,
        .place = {.host = std::string(text, ::strnlen(text, sizeof words)), .port = static_cast<std::uint16_t>(port)},
        .generation = generation};
  }
}

bool StoreNoticeReader::await_move(std::uint32_t moves, Deadline deadline, const std::stop_token& stop) const {
  const Page& page = at(page_);
  while (read().moves <= moves) {
    if (deadline.expired() || stop.stop_requested()) return false;
    sleep(page.moves, moves, deadline);
  }
  return true;
}

void StoreNoticeReader::wake() const {
  wake_all(at(page_).moves);
}

void StoreNoticeReader::say_waiting() const {
  at(page_).waited_ms.store(monotonic_ms(), std::memory_order_relaxed);
}

}  // namespace ddprun
