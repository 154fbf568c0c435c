#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/host_port.h"

namespace ddprun {

// A session client tells its users by these texts how the server is that it dials. A value. Pure.
class ServerTexts {
 public:
  ServerTexts(std::string host, std::uint16_t port);

  const std::string& endpoint() const { return endpoint_; }
  std::string waiting(const std::string& problem, std::chrono::milliseconds timeout) const;
  // No server answered within `elapsed`; problem: of the last attempt.
  std::string unreachable(const std::string& problem, std::chrono::milliseconds elapsed) const;
  // The text of unreachable() where the lookup of the host's name was the problem.
  std::string unresolved(const std::string& problem, std::chrono::milliseconds elapsed) const;
  std::string torch_store() const;
  // received: what the program at the endpoint sent, the banner of an HTTP or SSH server, for example.
  std::string not_a_server(std::string_view received) const;

 private:
  std::string host_;
  std::string endpoint_;
};

// The server may be another one than that of the endpoint.
std::string lost_server_text(const HostPort& server, const std::string& problem);

}  // namespace ddprun
