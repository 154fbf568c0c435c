#pragma once

#include <cstddef>
#include <string>

#include "ddprun/common/unique_fd.h"

namespace ddprun::comm {

// Memory that the processes of one host share. It has no name in any file system: it lasts as long as a process holds
// it, so nothing is left behind however they end. Zero at first; pages that nobody touches cost nothing.
class SharedSegment {
 public:
  // Throws Errc::io.
  static SharedSegment create(std::size_t bytes);
  // address: of a segment that another process of this host created and still holds. Throws Errc::unsupported when it
  // cannot be opened from here (another container or user).
  static SharedSegment open(const std::string& address, std::size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) = delete;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int descriptor() const { return fd_.get(); }
  // Where others open it.
  std::string address() const;

 private:
  SharedSegment(UniqueFd fd, std::size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddprun::comm
