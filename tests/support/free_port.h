#pragma once

#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include "common/unique_fd.h"

namespace ddprun::testing {

// Returns whether the port is free now. If it is, no other test process gets it while this process runs.
inline bool claim_port(std::uint16_t port) {
  static std::vector<UniqueFd> claims;
  sockaddr_un name{};  // an abstract address: the kernel drops it with its process
  name.sun_family = AF_UNIX;
  const auto text = "ddprun-test-port-" + std::to_string(port);
  text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
  const auto name_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  UniqueFd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(claim.get(), reinterpret_cast<sockaddr*>(&name), name_size) != 0) return false;

  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return false;
  claims.push_back(std::move(claim));
  return true;
}

// A free port for a server that needs an explicit port number. It is below the kernel's ephemeral ports, so that no
// connection of another program takes it before the server listens.
inline std::uint16_t free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> number(10'000, 28'999);
  for (int attempt = 0; attempt < 1000; ++attempt)
    if (const auto port = static_cast<std::uint16_t>(number(random)); claim_port(port)) return port;
  throw std::runtime_error("no free port");
}

}  // namespace ddprun::testing
