#include "ddprun/worker/comm/health/process_monitor.h"

#include <cerrno>
#include <csignal>
#include <future>
#include <optional>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

// poll() refuses more descriptors than a process may have open.
class FewDescriptors {
 public:
  FewDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &previous_);
    const rlimit few{1, previous_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &previous_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit previous_{};
};

}  // namespace

TEST_CASE("a watch that cannot go on ends its thread") {
  const auto own = ProcessIdentity::own();
  const ProcessIdentity ended{own.pid, own.start_time + 1};
  std::optional<FewDescriptors> few;
  std::promise<long> told;
  const ProcessMonitor watch({{0, ended}, {1, own}}, [&](int) {
    few.emplace();
    told.set_value(::syscall(SYS_gettid));
  });
  const auto thread = told.get_future().get();
  while (::syscall(SYS_tgkill, own.pid, thread, 0) == 0) std::this_thread::yield();
  CHECK(errno == ESRCH);
}
