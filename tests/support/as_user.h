#pragma once

#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <unistd.h>

namespace ddprun::testing {

// For its lifetime this process, which has to be root's, acts as another user; then it acts as before, also where an
// assertion has thrown.
class AsUser {
 public:
  explicit AsUser(uid_t user) : before_(::geteuid()) {
    if (!become(user)) {
      become(before_);
      throw std::runtime_error("cannot become user " + std::to_string(user));
    }
  }
  ~AsUser() { become(before_); }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

 private:
  // One user becomes another by way of root, which the saved user id still is.
  static bool become(uid_t user) { return ::seteuid(0) == 0 && ::seteuid(user) == 0; }

  const uid_t before_;
};

}  // namespace ddprun::testing
