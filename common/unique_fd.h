#pragma once

#include <unistd.h>
#include <utility>

namespace ddprun {

// Owns a file descriptor, or none (-1), and closes it. Movable, not copyable.
//
// Threads: not thread-safe. Errors: none; an error of close(2) is ignored, since the descriptor is closed nevertheless.
class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes ownership of fd; a negative one counts as none.
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Returns the descriptor without closing it; this object owns none afterwards.
  int release() { return std::exchange(fd_, -1); }
  // Closes the descriptor now.
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace ddprun
