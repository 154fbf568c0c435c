#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/unique_fd.h"

namespace ddprun::bench {

// The lower bound of a link: the two ends of one TCP connection, which send bytes of no meaning.
class LinkFloor {
 public:
  // Makes the end that listens at address, on port().
  static LinkFloor listen(const std::string& address);
  static LinkFloor dial(const std::string& address, std::uint16_t port);

  std::uint16_t port() const;
  void accept();
  // Both ends send each other that many bytes at once.
  void exchange(std::size_t bytes);
  // One direction alone: one end sends, the other one receives.
  void send(std::size_t bytes);
  void receive(std::size_t bytes);

 private:
  explicit LinkFloor(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::vector<char> memory_;
};

}  // namespace ddprun::bench
