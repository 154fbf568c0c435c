#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/transfer.h"
#include "ddprun/worker/comm/registered_buffer.h"

namespace ddprun::comm {

// What a transport may throw when it finds a call of another rank to differ: of the collective of that number, be it
// the one that it carries out or one before it.
struct CallsDiffer : std::runtime_error {
  CallsDiffer(std::uint64_t number, int rank)
      : runtime_error(fmt::format("rank {} calls another operation #{}", rank, number)), sequence(number) {}
  std::uint64_t sequence;
};

// How bytes get from rank to rank: what a back end over a network has to implement. Blocking calls that throw any
// std::exception when they fail; TransportGroup gives them order, threads, deadlines and a named cause. Only an
// Errc::mismatch has to name both sides itself. Nothing here has a default, so that what stands before another
// transport cannot forget to pass something on; a back end begins with BasicTransport.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view backend() const = 0;
  // Meets the other ranks through the store, under prefix.
  virtual void connect(Store& store, const std::string& prefix, Deadline deadline) = 0;
  // How many collectives execute() may be called with at once, each from another thread. Asked once connected, but of
  // one that never changes its mind.
  virtual int lanes() const = 0;
  // The first step of execute(), for who has something to do while the others come: tells the others of it, and
  // returns at once. True: execute() of the same collective comes next and goes on from there. False: nothing is
  // done. What goes wrong shows in execute().
  virtual bool announce(const Collective& collective) noexcept = 0;
  // An allreduce works in place, and a reduce at its root.
  virtual void execute(const Collective& collective) = 0;
  // Whether it wants collectives as they were called: those not in place, premultiplied sums and several spans too. For
  // memory that the host cannot touch.
  virtual bool accepts_raw_calls() const = 0;

  // Memory that it finds again by its address, and moves at the least cost. From any thread.
  virtual RegisteredBuffer allocate(std::size_t bytes) = 0;

  // Whether any thread may carry out whatever comes next, one at a time, also in the place of the caller that waits for
  // it: helped and posted works are made of that. Otherwise a collective is its caller's, or a lane's.
  virtual bool thread_agnostic() const = 0;
  // A transport may take a collective in two steps, so that this rank holds up nobody while its caller does other
  // things. The first returns at once; false: not this one, or not now. Its memory stays in use. The second finishes
  // the oldest that was posted; false when the deadline passed first. Between them come no execute() calls.
  virtual bool post(const Collective& collective) = 0;
  virtual bool finish_posted(const Collective& collective, const Deadline& deadline) = 0;

  // Of a send or recv. Returns at once; from any thread.
  virtual std::unique_ptr<Transfer> start(const Operation& operation, Span memory) = 0;
  // Of one that waits for a rank even when that has left: how long after its goodbye its messages may still come. None:
  // the transfer itself fails then.
  virtual std::optional<std::chrono::milliseconds> linger_timeout() const = 0;
  // Makes every blocked and every later call fail. From any thread; also during connect().
  virtual void interrupt() noexcept = 0;
};

// One collective at a time, in one step, as a group prepares it, over any memory.
class BasicTransport : public Transport {
 public:
  int lanes() const override { return 1; }
  bool announce(const Collective&) noexcept override { return false; }
  bool accepts_raw_calls() const override { return false; }
  RegisteredBuffer allocate(std::size_t bytes) override { return plain_buffer(bytes); }
  bool thread_agnostic() const override { return false; }
  bool post(const Collective&) override { return false; }
  bool finish_posted(const Collective&, const Deadline&) override { return false; }
  std::optional<std::chrono::milliseconds> linger_timeout() const override { return std::nullopt; }
};

}  // namespace ddprun::comm
