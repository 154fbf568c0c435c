#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

#include "common/unique_fd.h"

namespace ddprun::bench {

// The two ends of a conversation between this program and one of its helpers, in lines.
class Line {
 public:
  Line(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}

  void say(const std::string& text);
  // Throws Errc::io when the other side has gone.
  std::string hear();

 private:
  UniqueFd in_, out_;
};

// A process forked from this one that runs a function and ends; killed and reaped by the destructor. REQUIRES: this
// process has one thread.
class Helper {
 public:
  explicit Helper(const std::function<void(Line& line)>& work);
  Helper(Helper&& other) noexcept;
  Helper& operator=(Helper&&) = delete;
  ~Helper();

  pid_t pid() const { return pid_; }
  Line& line() { return line_; }
  // Returns the bytes of memory that it uses.
  std::size_t resident_bytes() const;

 private:
  struct Parts;
  explicit Helper(Parts parts);
  static Parts start(const std::function<void(Line& line)>& work);

  pid_t pid_;
  Line line_;
};

}  // namespace ddprun::bench
