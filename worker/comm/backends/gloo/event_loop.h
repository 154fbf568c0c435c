#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>

// Three weaknesses of the event loop of a Gloo device, which end the process when a peer is killed while a group forms:
// - An exception of a handler leaves the loop's thread: the peer has reset a connection that has just been made, and so
//   has no name; or (versions from 2023 on) a pair that has failed meanwhile is connected after all.
// - After such an exception the pair has a descriptor that is not in the loop. Closing the pair removes it from the
//   loop all the same, and the error of the kernel is an exception in a function that is noexcept.
// - From 2023 on the loop is shared by its device and by connections that are being made. If such a connection is the
//   last to let go of it, the loop's thread joins itself.
// Gloo has no hook for them. So the program has a Loop::run() of its own, which calls libgloo's again after an
// exception, and which tells which loop a device has, and a Loop::unregisterDescriptor() of its own, which calls
// libgloo's and ignores its exception. The dynamic linker prefers them where libgloo is a shared library and the
// program shows the functions. The library for C and Python hides them: there the weaknesses remain.
namespace ddprun::comm {

// The facts known of the event loop of one device. A value; any thread may use it.
class EventLoop {
 public:
  EventLoop() = default;  // nothing is known
  explicit EventLoop(std::weak_ptr<void> loop) : loop_(std::move(loop)), idle_uses_(loop_.use_count()) {}

  // Returns whether connections are being made, or have just been made by its thread.
  bool is_connecting() const { return loop_.use_count() > idle_uses_; }
  // Waits while they are; returns false at the end of the time.
  bool await_idle(std::chrono::milliseconds time) const;

 private:
  std::weak_ptr<void> loop_;
  long idle_uses_ = 0;  // those of the device
};

struct GlooDevice {
  std::shared_ptr<::gloo::transport::tcp::Device> gloo;
  EventLoop loop;
};

// Creates a device, and with it its loop's thread. Throws what Gloo throws.
GlooDevice create_device(const ::gloo::transport::tcp::attr& attributes);

}  // namespace ddprun::comm
