#pragma once

#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace ddprun::testing {

// The addresses on which a process listens for TCP connections: "127.0.0.1", "0.0.0.0", "::".
inline std::vector<std::string> listening_addresses(pid_t pid) {
  std::set<unsigned long> sockets;  // by inode
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
    unsigned long inode = 0;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (std::sscanf(target.c_str(), "socket:[%lu]", &inode) == 1) sockets.insert(inode);
  }
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    std::ifstream table(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
    for (std::string line; std::getline(table, line);) {
      char address[64] = {};
      unsigned state = 0;
      unsigned long inode = 0;
      // "sl local_address:port rem_address:port st queues timers retransmits uid timeout inode"
      if (std::sscanf(line.c_str(), " %*d: %32[0-9A-F]:%*x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", address, &state,
                      &inode) != 3)
        continue;
      constexpr unsigned listening = 0x0A;
      if (state != listening || !sockets.contains(inode)) continue;
      std::array<unsigned, 4> words{};  // in the byte order of the machine
      for (std::size_t i = 0; i < std::strlen(address) / 8; ++i) std::sscanf(address + 8 * i, "%8x", &words.at(i));
      char text[INET6_ADDRSTRLEN] = {};
      ::inet_ntop(family, words.data(), text, sizeof text);
      addresses.emplace_back(text);
    }
  }
  return addresses;
}

}  // namespace ddprun::testing
