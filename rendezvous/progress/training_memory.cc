#include "rendezvous/progress/training_memory.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "rendezvous/progress/fields.h"

namespace ddprun {
namespace {

constexpr std::size_t record_words = sizeof(TrainingRecord) / sizeof(std::uint64_t);
constexpr int most_workers = 65536;

// Each word is atomic, so that a reader and a writer may run at the same time.
struct Copy {
  std::atomic<std::uint64_t> sequence;  // grows with each record of the page; odd while the record changes; 0: none
  std::atomic<std::uint64_t> words[record_words];
};

// The layout of a worker's records in its page.
struct TrainingSlot {
  Copy copies[2];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

static_assert(sizeof(TrainingSlot) <= 4096);

TrainingSlot& slot_at(std::byte* page) {
  return *reinterpret_cast<TrainingSlot*>(page);
}

// Returns nullopt if there is no whole record, or it changed meanwhile.
std::optional<TrainingRecord> read_once(const Copy& copy) {
  const auto before = copy.sequence.load(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0) return std::nullopt;
  std::uint64_t words[record_words];
  for (std::size_t i = 0; i < record_words; ++i) words[i] = copy.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (copy.sequence.load(std::memory_order_relaxed) != before) return std::nullopt;
  TrainingRecord record;
  std::memcpy(&record, words, sizeof(record));
  return record;
}

// The record with the higher number is the newer one; one that changes has the highest.
int newest(const TrainingSlot& slot) {
  return slot.copies[1].sequence.load(std::memory_order_acquire) >
                 slot.copies[0].sequence.load(std::memory_order_acquire)
             ? 1
             : 0;
}

std::optional<TrainingRecord> read_newest(const TrainingSlot& slot) {
  const int first = newest(slot);
  if (auto record = read_once(slot.copies[first])) return record;
  return read_once(slot.copies[1 - first]);
}

}  // namespace

std::size_t SharedPages::page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

SharedPages::SharedPages(int descriptor, std::size_t offset, std::size_t bytes) : bytes_(bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) throw make_error(Errc::io, "cannot map {} bytes: {}", bytes, errno_text(errno));
  data_ = static_cast<std::byte*>(memory);
}
SharedPages::SharedPages(SharedPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
SharedPages::~SharedPages() {
  if (data_) ::munmap(data_, bytes_);
}

TrainingMemory::TrainingMemory(int workers)
    : workers_(workers), file_(::memfd_create("ddprun-training", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const auto bytes = SharedPages::page_size() * static_cast<std::size_t>(workers);
  if (!file_ || ::fchmod(file_.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    throw make_error(Errc::io, "cannot create {} bytes of shared memory: {}", bytes, errno_text(errno));
  // The size is sealed, so no access can end in SIGBUS.
  ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  pages_ = SharedPages(file_.get(), 0, bytes);
}

std::string TrainingMemory::address() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

std::optional<TrainingRecord> TrainingMemory::read(int local_rank) const {
  if (local_rank < 0 || local_rank >= workers_) return std::nullopt;
  const auto& slot = slot_at(pages_.data() + SharedPages::page_size() * static_cast<std::size_t>(local_rank));
  constexpr int attempts = 8;  // a writer needs less than a microsecond
  for (int attempt = 0; attempt < attempts; ++attempt)
    if (const auto record = read_newest(slot)) return record->time_ms > 0 ? record : std::nullopt;
  return std::nullopt;
}

void TrainingMemory::clear() {
  // This touches no page without a record, and at a job's start no page has one.
  if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(SharedPages::page_size()) * workers_) != 0)
    throw make_error(Errc::io, "cannot clear the memory of the workers' training: {}", errno_text(errno));
}

TrainingPublisher::TrainingPublisher(const std::string& address) {
  const auto colon = address.rfind(':');
  const auto index =
      colon == std::string::npos ? std::nullopt : number_in<int>(std::string_view(address).substr(colon + 1));
  if (!index || *index < 0 || *index >= most_workers)
    throw make_error(Errc::usage, "{} = {}: expected FILE:NUMBER", training_record_variable, address);
  const UniqueFd file(::open(address.substr(0, colon).c_str(), O_RDWR | O_CLOEXEC));
  const auto offset = SharedPages::page_size() * static_cast<std::size_t>(*index);
  if (!file) throw make_error(Errc::io, "cannot open {}: {}", address, errno_text(errno));
  if (::lseek(file.get(), 0, SEEK_END) < static_cast<off_t>(offset + SharedPages::page_size()))
    throw make_error(Errc::io, "{} is not the memory of an agent with so many workers", address);
  page_ = SharedPages(file.get(), offset, SharedPages::page_size());
}

void TrainingPublisher::publish(const TrainingRecord& record) {
  auto& slot = slot_at(page_.data());
  std::uint64_t words[record_words];
  std::memcpy(words, &record, sizeof(record));
  const int last = newest(slot);
  const auto sequence = slot.copies[last].sequence.load(std::memory_order_relaxed);
  // A process that was killed while it wrote leaves an odd number: its copy has no record that could be lost.
  auto& copy = slot.copies[sequence % 2 != 0 ? last : 1 - last];
  const auto next = (sequence | 1) + 1;
  copy.sequence.store(next - 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < record_words; ++i) copy.words[i].store(words[i], std::memory_order_relaxed);
  copy.sequence.store(next, std::memory_order_release);
}

}  // namespace ddprun
