#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/deadline.h"
#include "common/unique_fd.h"

// The test of a TCP connection between two hosts: one connects, the other serves.
namespace ddprun::doctor {

// Bounds a test on both sides, so that a server is free for the next test when a client has given up.
inline constexpr std::chrono::milliseconds link_timeout{3'000};

// The result of a test, as measured by the host that connected. A value.
struct LinkFigures {
  std::chrono::nanoseconds round_trip{0};  // the median of many small messages
  double sent_bytes_per_s = 0;             // to the server, measured there
  double received_bytes_per_s = 0;         // from the server, measured here
  std::chrono::nanoseconds clock_ahead{
      0};  // the time by which the server's clock is ahead of this one, exact to half a round trip

  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

// Serves the tests of other hosts, one after the other, on a port that it chooses. A connection that does not begin
// with the token within a second is closed, so that nobody else can use up the network.
//
// Threads: serve_one() and cancel() may run at the same time.
class LinkServer {
 public:
  // Throws Errc::io.
  explicit LinkServer(std::string token);

  std::uint16_t port() const { return port_; }
  // Waits for a connection and serves it. Returns false once cancelled. A connection that breaks ends only its own
  // test.
  bool serve_one();
  void cancel();

 private:
  std::string token_;
  UniqueFd listener_;
  UniqueFd cancelled_;
  std::uint16_t port_ = 0;
};

// Tests the connection to the server at this address. Throws Errc::unreachable, Errc::timeout or Errc::connection_lost,
// naming address and cause.
LinkFigures test_link(const std::string& address, std::uint16_t port, const std::string& token, Deadline deadline);

}  // namespace ddprun::doctor
