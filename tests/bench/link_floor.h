#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/unique_fd.h"

namespace ddprun::bench {

// The lower bound of a link: two ends of one TCP connection send each other the same number of bytes at once.
class LinkFloor {
 public:
  // Makes the end that listens at address, on port().
  static LinkFloor listen(const std::string& address);
  static LinkFloor dial(const std::string& address, std::uint16_t port);

  std::uint16_t port() const;
  void accept();
  void exchange(std::size_t bytes);

 private:
  explicit LinkFloor(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::vector<char> memory_;
};

}  // namespace ddprun::bench
