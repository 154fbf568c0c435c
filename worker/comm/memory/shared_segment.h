#pragma once

#include <cstddef>
#include <string>

#include "common/unique_fd.h"

namespace ddprun::comm {

// Memory shared by processes of one host (a memfd, mapped). It has no name in any file system and exists as long as a
// process has it open, so nothing is left behind however the processes end. It is zero at first; untouched pages take
// no memory.
class SharedSegment {
 public:
  // Throws Errc::io.
  static SharedSegment create(std::size_t bytes);
  // address: that of a segment that another process of this host created and still has open. Throws Errc::unsupported
  // when it cannot be opened from here (another container or user).
  static SharedSegment open(const std::string& address, std::size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) = delete;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int descriptor() const { return fd_.get(); }
  // The path by which other processes open it.
  std::string address() const;

 private:
  SharedSegment(UniqueFd fd, std::size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddprun::comm
