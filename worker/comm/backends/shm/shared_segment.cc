#include "ddprun/worker/comm/backends/shm/shared_segment.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "ddprun/common/error.h"

namespace ddprun::comm {

SharedSegment SharedSegment::create(std::size_t bytes) {
  UniqueFd fd(::memfd_create("ddprun-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw make_error(Errc::io, "cannot create {} bytes of shared memory: {}", bytes, errno_text(errno));
  }
  // The size is sealed, so no access can end in SIGBUS.
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return {std::move(fd), bytes};
}

SharedSegment SharedSegment::open(const std::string& address, std::size_t bytes) {
  UniqueFd fd(::open(address.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw make_error(Errc::unsupported, "cannot open shared memory at {}: {}", address, errno_text(errno));
  if (::lseek(fd.get(), 0, SEEK_END) != static_cast<off_t>(bytes)) {
    throw make_error(Errc::unsupported, "shared memory at {} does not have {} bytes", address, bytes);
  }
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
