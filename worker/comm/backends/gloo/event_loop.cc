#include "worker/comm/backends/gloo/event_loop.h"

#include <condition_variable>
#include <dlfcn.h>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <gloo/transport/tcp/loop.h>

#include "common/log.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;
using GlooLoop = ::gloo::transport::tcp::Loop;
using GlooHandler = ::gloo::transport::tcp::Handler;
using Run = void (*)(GlooLoop*);
using Unregister = void (*)(GlooLoop*, int, GlooHandler*);

// The mangled names of gloo::transport::tcp::Loop::run() and unregisterDescriptor(int, Handler*).
#define GLOO_LOOP_RUN "_ZN4gloo9transport3tcp4Loop3runEv"
#define GLOO_LOOP_UNREGISTER "_ZN4gloo9transport3tcp4Loop20unregisterDescriptorEiPNS1_7HandlerE"

// An event whose handler fails each time does not keep a processor busy.
constexpr milliseconds pause_after_exception{1};
// A thread that was started runs within this time, even on a crowded machine.
constexpr std::chrono::seconds start_timeout{10};

Run run_of_libgloo() {
  static const auto run = reinterpret_cast<Run>(::dlsym(RTLD_NEXT, GLOO_LOOP_RUN));
  return run;
}

Unregister unregister_of_libgloo() {
  static const auto unregister = reinterpret_cast<Unregister>(::dlsym(RTLD_NEXT, GLOO_LOOP_UNREGISTER));
  return unregister;
}

// The object of this program that has the address; null if none has.
const void* object_at(const void* address) {
  Dl_info object;
  return ::dladdr(address, &object) != 0 ? object.dli_fbase : nullptr;
}

// Returns whether libgloo's threads run the function below. They do not in a shared library that hides it, such as that
// for C and Python, and where libgloo is linked statically: then nothing is known of the loops.
bool takes_the_place_of_libgloos() {
  static const bool does =
      object_at(::dlsym(RTLD_DEFAULT, GLOO_LOOP_RUN)) == object_at(reinterpret_cast<const void*>(&object_at)) &&
      run_of_libgloo();
  return does;
}

// Where the thread of a new loop tells the creator of its device which loop it runs.
class NewLoop {
 public:
  // Only one device is created at a time.
  std::unique_lock<std::mutex> begin() {
    std::unique_lock creation(creation_);
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
    return creation;
  }
  void started(GlooLoop* loop) {
    {
      const std::lock_guard lock(mutex_);
      loop_ = loop;
    }
    changed_.notify_all();
  }
  // Returns null if no thread has told.
  GlooLoop* await() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, start_timeout, [this] { return loop_ != nullptr; });
    return loop_;
  }

 private:
  std::mutex creation_, mutex_;
  std::condition_variable changed_;
  GlooLoop* loop_ = nullptr;
};

// Never destroyed: a loop's thread may outlive static objects.
NewLoop& new_loop() {
  static auto* const loop = new NewLoop;
  return *loop;
}

// Before 2023 a loop belonged to its device alone.
template <class Loop>
EventLoop event_loop_of(Loop& loop) {
  if constexpr (requires { loop.weak_from_this(); })
    return EventLoop(std::weak_ptr<void>(loop.weak_from_this()));
  else
    return {};
}

}  // namespace

// Both are weak, so that a libgloo that is linked statically keeps its own.
extern "C" __attribute__((weak, visibility("default"))) void ddprun_run_gloo_loop(GlooLoop* loop) __asm__(
    GLOO_LOOP_RUN);
extern "C" void ddprun_run_gloo_loop(GlooLoop* loop) {
  new_loop().started(loop);
  for (;;) {
    try {
      return run_of_libgloo()(loop);
    } catch (const std::exception& error) {
      log::debug("gloo: an event failed: {}", error.what());
      std::this_thread::sleep_for(pause_after_exception);
    }
  }
}

extern "C" __attribute__((weak, visibility("default"))) void ddprun_unregister_gloo_descriptor(
    GlooLoop* loop, int fd, GlooHandler* handler) __asm__(GLOO_LOOP_UNREGISTER);
extern "C" void ddprun_unregister_gloo_descriptor(GlooLoop* loop, int fd, GlooHandler* handler) {
  try {
    unregister_of_libgloo()(loop, fd, handler);
  } catch (const std::exception& error) {
    log::debug("gloo: a descriptor was not registered: {}", error.what());
  }
}

bool EventLoop::await_idle(milliseconds time) const {
  const auto end = std::chrono::steady_clock::now() + time;
  while (is_connecting() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  return !is_connecting();
}

GlooDevice create_device(const ::gloo::transport::tcp::attr& attributes) {
  const auto creation = new_loop().begin();
  auto device =
      std::dynamic_pointer_cast<::gloo::transport::tcp::Device>(::gloo::transport::tcp::CreateDevice(attributes));
  auto* const loop = takes_the_place_of_libgloos() ? new_loop().await() : nullptr;
  return {std::move(device), loop ? event_loop_of(*loop) : EventLoop()};
}

}  // namespace ddprun::comm
