#pragma once

#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// A pipe as rank 0's metrics file, too small for the lines of all steps: rank 0 blocks in the middle of the job until
// release(), however long the test takes.
class MetricsPipe {
 public:
  MetricsPipe() {
    REQUIRE(::mkfifo(path().c_str(), 0600) == 0);
    pipe_ = UniqueFd(::open(path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(::fcntl(pipe_.get(), F_SETPIPE_SZ, 4096) == 4096);  // a hundred steps make 15 KB
  }
  std::string path() const { return (folder_ / "metrics").string(); }
  bool has_lines() const {
    int bytes = 0;
    return ::ioctl(pipe_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
  }
  void release() {
    REQUIRE(::fcntl(pipe_.get(), F_SETPIPE_SZ, 1 << 16) == 1 << 16);
    char lines[4096];
    REQUIRE(::read(pipe_.get(), lines, sizeof lines) > 0);  // a read wakes the writer
  }

 private:
  TempDir folder_;
  UniqueFd pipe_;
};

}  // namespace ddprun::testing
