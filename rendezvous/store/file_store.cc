#include "rendezvous/store/file_store.h"

#include <cerrno>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>

#include "common/error.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/reply_reader.h"
#include "rendezvous/store/store_limits.h"

namespace ddprun {

using namespace rendezvous;

namespace {

constexpr std::size_t read_chunk_bytes = 64 << 10;
constexpr ConnectionId connection = 0;  // one for all requests: none of those applied here waits

// Sleeps for times that grow from 1 to 50 ms, cut short by the deadline.
class Pause {
 public:
  void sleep(Deadline deadline) {
    std::this_thread::sleep_for(std::min<Deadline::Duration>(backoff_.next(generator_), deadline.remaining()));
  }

 private:
  Backoff backoff_{.interval = std::chrono::milliseconds(1), .cap = std::chrono::milliseconds(50)};
  std::minstd_rand generator_;
};

UniqueFd open_log(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) throw make_error(Errc::io, "file store: cannot open {}: {}", path.string(), errno_text(errno));
  return fd;
}

}  // namespace

// flock(2) with a deadline: the process that holds the lock may be stopped.
class FileStore::Lock {
 public:
  Lock(const FileStore& store, int kind, Deadline deadline) : fd_(store.fd_.get()) {
    for (Pause pause; ::flock(fd_, kind | LOCK_NB) != 0;) {
      if (errno != EWOULDBLOCK && errno != EINTR) store.fail("lock");
      if (deadline.expired())
        throw make_error(Errc::timeout, "file store: another process holds the lock of {}", store.path_.string());
      pause.sleep(deadline);
    }
  }
  ~Lock() { ::flock(fd_, LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int fd_;
};

FileStore::FileStore(std::filesystem::path path) : path_(std::move(path)), fd_(open_log(path_)) {}

void FileStore::fail(const char* what) const {
  throw make_error(Errc::io, "file store: cannot {} {}: {}", what, path_.string(), errno_text(errno));
}

std::uint64_t FileStore::file_size() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) fail("stat");
  return static_cast<std::uint64_t>(info.st_size);
}

// Applies the complete records before offset size, and returns the offset after them. REQUIRES: a lock.
std::uint64_t FileStore::replay(std::uint64_t size) {
  if (size < replayed_)
    throw make_error(Errc::io, "file store: {} shrank from {} to {} bytes", path_.string(), replayed_, size);
  RequestParser parser(RequestParser::Handshake::done);
  std::vector<char> chunk(std::min<std::uint64_t>(read_chunk_bytes, size - replayed_));
  auto end = replayed_;
  try {
    while (end < size) {
      const auto want = std::min<std::uint64_t>(chunk.size(), size - end);
      const auto n = ::pread(fd_.get(), chunk.data(), want, static_cast<off_t>(end));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("read");
      end += static_cast<std::uint64_t>(n);
      parser.feed({chunk.data(), static_cast<std::size_t>(n)});
      while (const auto* request = parser.next()) apply(*request);
    }
  } catch (const Error& e) {
    state_ = StoreState();
    replayed_ = 0;
    throw make_error(Errc::io, "file store: {} is damaged before byte {}: {}", path_.string(), end, e.what());
  }
  replayed_ = end - parser.pending_bytes();
  return replayed_;
}

std::string FileStore::apply(const Request& request) {
  replies_.clear();
  state_.apply(connection, request, replies_);
  return replies_.empty() ? std::string() : std::move(replies_.front().bytes);
}

std::string FileStore::ask(const Request& request, Deadline deadline) {
  const std::lock_guard guard(mutex_);
  if (file_size() != replayed_) {
    const Lock lock(*this, LOCK_SH, deadline);
    replay(file_size());
  }
  return apply(request);
}

std::string FileStore::change(const Request& request, Deadline deadline) {
  const std::lock_guard guard(mutex_);
  const Lock lock(*this, LOCK_EX, deadline);
  const auto size = file_size();
  if (replay(size) < size && ::ftruncate(fd_.get(), static_cast<off_t>(replayed_)) != 0) fail("truncate");
  auto reply = apply(request);  // throws before anything is written
  append_record(encode(request));
  return reply;
}

// After a failed write the map is ahead of the file, so it is reset and the next call replays the file.
void FileStore::append_record(const std::string& record) {
  std::size_t done = 0;
  while (done < record.size()) {
    const auto n =
        ::pwrite(fd_.get(), record.data() + done, record.size() - done, static_cast<off_t>(replayed_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      state_ = StoreState();
      replayed_ = 0;
      fail("append to");
    }
    done += static_cast<std::size_t>(n);
  }
  replayed_ += done;
}

// Repeats attempt() until it returns a value.
template <class Attempt>
auto FileStore::retry(const char* verb, std::string_view key, Deadline deadline, Attempt attempt) {
  const auto start = Deadline::Clock::now();
  for (Pause pause;; pause.sleep(deadline)) {
    const bool last = deadline.expired();
    if (auto result = attempt()) return *std::move(result);
    if (last) throw_wait_timeout(fmt::format("file store {}", path_.string()), verb, key, start);
  }
}

void FileStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  require_key(key);
  require_value(value, key);
  change(SetRequest{key, value}, deadline);
}

std::string FileStore::get(std::string_view key, Deadline deadline) {
  return multi_get({std::string(key)}, deadline)[0];
}

std::int64_t FileStore::add(std::string_view key, std::int64_t delta, Deadline deadline) {
  require_key(key);
  return ReplyReader(change(AddRequest{key, delta}, deadline)).i64();
}

std::string FileStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                   Deadline deadline) {
  require_key(key);
  require_value(desired, key);
  return ReplyReader(change(CompareSetRequest{key, expected, desired}, deadline)).vec();
}

bool FileStore::check(const std::vector<std::string>& keys, Deadline deadline) {
  return ReplyReader(ask(CheckRequest{checked_views(keys)}, deadline)).u8() == 0;
}

void FileStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  retry("wait for", keys.empty() ? "" : keys.front(), deadline,
        [&] { return check(keys, deadline) ? std::optional(true) : std::nullopt; });
}

bool FileStore::erase(std::string_view key, Deadline deadline) {
  require_key(key);
  return ReplyReader(change(DeleteKeyRequest{key}, deadline)).i64() > 0;
}

std::int64_t FileStore::num_keys(Deadline deadline) {
  return ReplyReader(ask(NumKeysRequest{}, deadline)).i64();
}

void FileStore::append(std::string_view key, std::string_view suffix, Deadline deadline) {
  require_key(key);
  change(AppendRequest{key, suffix}, deadline);
}

std::vector<std::string> FileStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  wait(keys, deadline);
  ReplyReader reply(ask(MultiGetRequest{checked_views(keys)}, deadline));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(reply.vec());
  return values;
}

void FileStore::multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) {
  for_each_batch(
      checked_views(pairs), [](const KeyValueView& pair) { return pair.key.size() + pair.value.size(); },
      [&](std::span<const KeyValueView> batch) { change(MultiSetRequest{batch}, deadline); });
}

std::vector<std::string> FileStore::list_keys(Deadline deadline) {
  ReplyReader reply(ask(ListKeysRequest{}, deadline));
  std::vector<std::string> keys;
  for (auto left = reply.i64(); left > 0; --left) keys.push_back(reply.vec());
  return keys;
}

void FileStore::queue_push(std::string_view queue, std::string_view item, Deadline deadline) {
  require_key(queue);
  require_value(item, queue);
  change(QueuePushRequest{queue, item}, deadline);
}

std::string FileStore::queue_pop(std::string_view queue, Deadline deadline) {
  require_key(queue);
  return retry("queue_pop", queue, deadline, [&]() -> std::optional<std::string> {
    if (queue_length(queue, deadline) == 0) return std::nullopt;
    ReplyReader reply(change(QueuePopRequest{queue}, deadline));
    return reply.i64() > 0 ? std::optional(reply.vec()) : std::nullopt;
  });
}

std::int64_t FileStore::queue_length(std::string_view queue, Deadline deadline) {
  return ReplyReader(ask(QueueLengthRequest{queue}, deadline)).i64();
}

// A counter, as on the wire, that is polled until it has reached world_size.
void FileStore::barrier(std::string_view key, std::int64_t world_size, Deadline deadline) {
  if (add(key, 1, deadline) >= world_size) return;
  retry("barrier", key, deadline, [&] {
    const auto entered = parse_counter(ReplyReader(ask(GetRequest{key}, deadline)).vec(), key);
    return entered >= world_size ? std::optional(true) : std::nullopt;
  });
}

void FileStore::set_will(std::string_view, std::string_view, Deadline) {
  throw make_error(Errc::unsupported, "file store {}: no last wills, since no server notices that a client died",
                   path_.string());
}
void FileStore::clear_will(Deadline) {
  throw make_error(Errc::unsupported, "file store {}: no last wills, since no server notices that a client died",
                   path_.string());
}

}  // namespace ddprun
