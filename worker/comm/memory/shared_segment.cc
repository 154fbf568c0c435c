#include "worker/comm/memory/shared_segment.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/error.h"

namespace ddprun::comm {
namespace {

// The form of SharedSegment::address(), which other ranks read in the store.
bool is_address(const std::string& text) {
  int length = 0;
  unsigned process = 0, descriptor = 0;
  const bool matches = std::sscanf(text.c_str(), "/proc/%u/fd/%u%n", &process, &descriptor, &length) == 2;
  return matches && static_cast<std::size_t>(length) == text.size();
}

}  // namespace

SharedSegment SharedSegment::create(std::size_t bytes) {
  UniqueFd fd(::memfd_create("ddprun-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // The segment is for only this user, also where somebody else may follow the links in /proc.
  if (!fd || ::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw make_error(Errc::io, "cannot create {} bytes of shared memory: {}", bytes, errno_text(errno));
  }
  // The size is sealed, so no access can end in SIGBUS.
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return {std::move(fd), bytes};
}

SharedSegment SharedSegment::open(const std::string& address, std::size_t bytes) {
  if (!is_address(address)) throw make_error(Errc::unsupported, "'{}' is no address of shared memory", address);
  UniqueFd fd(::open(address.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw make_error(Errc::unsupported, "cannot open shared memory at {}: {}", address, errno_text(errno));
  if (::lseek(fd.get(), 0, SEEK_END) != static_cast<off_t>(bytes)) {
    throw make_error(Errc::unsupported, "shared memory at {} does not have {} bytes", address, bytes);
  }
  // A segment without these seals might be cut short while it is mapped.
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (const int found = ::fcntl(fd.get(), F_GET_SEALS); found < 0 || (found & seals) != seals)
    throw make_error(Errc::unsupported, "{} is not shared memory of a rank", address);
  return {std::move(fd), bytes};
}

SharedSegment::SharedSegment(UniqueFd fd, std::size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw make_error(Errc::io, "cannot map {} bytes: {}", bytes, errno_text(errno));
  data_ = static_cast<std::byte*>(memory);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedSegment::~SharedSegment() {
  if (data_) ::munmap(data_, bytes_);
}

std::string SharedSegment::address() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get());
}

}  // namespace ddprun::comm
