#pragma once

#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <stdexcept>
#include <string>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun::testing {

// For its scope, this thread and the threads it starts are in another network namespace. A socket stays in the
// namespace where it was opened.
class InNetwork {
 public:
  explicit InNetwork(const std::string& path) : before_(open("/proc/thread-self/ns/net")) { enter(open(path)); }
  InNetwork(const InNetwork&) = delete;
  InNetwork& operator=(const InNetwork&) = delete;
  ~InNetwork() {
    if (::setns(before_.get(), CLONE_NEWNET) != 0) std::terminate();
  }
  // Returns the path of the original namespace, for an InNetwork within this one.
  std::string outside() const { return "/proc/self/fd/" + std::to_string(before_.get()); }

 private:
  static UniqueFd open(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) throw std::runtime_error(path + ": " + errno_text(errno));
    return fd;
  }
  static void enter(const UniqueFd& fd) {
    if (::setns(fd.get(), CLONE_NEWNET) != 0) throw std::runtime_error("setns: " + errno_text(errno));
  }

  const UniqueFd before_;
};

// Returns the bytes that an interface of this thread's network namespace has sent so far, headers included.
inline std::uint64_t bytes_sent(const std::string& interface) {
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.find(interface) >= colon) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int field = 0; field <= 8; ++field) fields >> value;  // eight fields about received data come first
    return value;
  }
  throw std::runtime_error("there is no interface " + interface);
}

}  // namespace ddprun::testing
