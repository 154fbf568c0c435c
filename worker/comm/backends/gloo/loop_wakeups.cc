#include "worker/comm/backends/gloo/loop_wakeups.h"

#include <cerrno>
#include <chrono>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>

#include "common/error.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::microseconds iteration_pause{50};

class Pause : public ::gloo::transport::tcp::Handler {
 public:
  void handleEvents(int) override { std::this_thread::sleep_for(iteration_pause); }
};

// Never destroyed: a loop may hold an event of a descriptor that was closed.
Pause& shared_pause() {
  static auto* const pause = new Pause;
  return *pause;
}

UniqueFd make_event() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (!event) throw make_error(Errc::io, "eventfd: {}", errno_text(errno));
  return event;
}

}  // namespace

// No deregistration is needed: closing the descriptor removes it from the loop.
LoopWakeups::LoopWakeups(::gloo::transport::tcp::Device& device) : event_(make_event()) {
  device.registerDescriptor(event_.get(), EPOLLIN, &shared_pause());
}

LoopWakeups::Frequent::Frequent(LoopWakeups& wakeups) : event_(wakeups.event_.get()) {
  ::eventfd_write(event_, 1);
}

LoopWakeups::Frequent::~Frequent() {
  eventfd_t one;
  ::eventfd_read(event_, &one);
}

}  // namespace ddprun::comm
