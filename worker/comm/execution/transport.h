#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "common/deadline.h"
#include "rendezvous/store/store.h"
#include "worker/comm/bootstrap/rank_location.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/registered_buffer.h"

namespace ddprun::comm {

// Thrown by a transport that finds a call of another rank to differ: in the collective of that sequence number, which
// is the one being executed or an earlier one.
struct CallsDiffer : std::runtime_error {
  CallsDiffer(std::uint64_t number, int rank)
      : runtime_error(fmt::format("rank {} calls another operation #{}", rank, number)), sequence(number) {}
  std::uint64_t sequence;
};

// Facts about a transport that do not change once it is connected.
struct TransportTraits {
  std::string_view backend;
  // The number of execute() calls that may run at once, each on its own thread.
  int concurrency = 1;
  // True if execute() takes collectives as the user called them, including those out of place, premultiplied sums and
  // several spans, as for device memory, which the host cannot touch; otherwise the group composes these of in-place
  // collectives on one span.
  bool accepts_raw_calls = false;
  // For a transport whose transfers do not fail by themselves when their peer leaves: the time after its departure
  // notice within which the peer's last messages may still arrive.
  std::optional<std::chrono::milliseconds> linger_timeout{};
};

// Collectives in two steps, start and test as in MPI, for a transport whose collectives any thread may execute: the
// caller, a thread that waits for the work, or the group's own thread. One call at a time. start() and test() throw
// what Transport::execute() throws.
class NonblockingCollectives {
 public:
  virtual ~NonblockingCollectives() = default;

  // Tells the peers of a collective whose execute() is called next, so that they can proceed while the caller does its
  // bookkeeping. Returns at once; a failure shows in execute().
  virtual void announce(const Collective& collective) noexcept = 0;
  // Announces a collective whose execute() is called next, and waits until all ranks have announced it, so that
  // execute() waits for none of them to come; false when the deadline passes first, or at once where this does not pay.
  // A failure shows in execute().
  virtual bool meet(const Collective&, const Deadline&) noexcept { return false; }
  // Starts a collective and returns at once; its memory stays in use until test() returns true. Returns false if its
  // kind or size does not allow that, or too many are outstanding. No execute() may come before all are finished.
  virtual bool start(const Collective& collective) = 0;
  // Waits until the oldest started collective has finished; false when the deadline passes first.
  virtual bool test(const Collective& collective, const Deadline& deadline) = 0;
  // Orders a stream (cudaStream_t) behind a collective that was started and that test() has not found finished, and
  // sets `cancelled`, as Work::order() does. Returns false if it cannot.
  virtual bool order(const Collective&, void* /*stream*/, float* /*cancelled*/) { return false; }
  // Returns whether a test() whose deadline has passed waits for no other rank, so that one thread can test for all
  // groups of the process.
  virtual bool tests_at_once() const { return false; }
  // Called once by a thread that does nothing but test().
  virtual void begin_thread() const noexcept {}
};

// Moves data between ranks; each back end implements it. TransportGroup adds order, threads, deadlines and diagnosis.
//
// Ownership: shared; the group holds it until all its operations are over.
// Threads: as each method says; any thread may call interrupt() at any time.
// Errors: a blocking call throws any std::exception when it fails. The group finds the cause; only an Errc::mismatch
// has to name both sides itself.
class Transport {
 public:
  virtual ~Transport() = default;

  // Connects to the other ranks, which it finds through the store's keys under prefix. Blocks.
  virtual void connect(Store& store, const std::string& prefix, Deadline deadline) = 0;
  // Called once connected. None of the answer changes afterwards.
  virtual TransportTraits traits() const = 0;
  // Executes a collective and returns once it has finished at this rank. An allreduce, and a reduce at its root, is in
  // place unless traits().accepts_raw_calls.
  virtual void execute(const Collective& collective) = 0;
  // Returns them if the transport has them; the same answer each time, once connected.
  virtual NonblockingCollectives* nonblocking() { return nullptr; }
  // Starts a send or receive and returns at once. Any thread may call it.
  virtual std::unique_ptr<Transfer> start_transfer(const Operation& operation, Span memory) = 0;
  // Returns memory that this transport moves at the least cost, recognised by its address. Any thread may call it.
  virtual RegisteredBuffer allocate(std::size_t bytes) { return plain_buffer(bytes); }
  // Implements ProcessGroup::reduces_elements_alike(). Once connected, any thread may call it.
  virtual bool reduces_elements_alike(const Operation&) const { return false; }
  // Implements ProcessGroup::bytes_sent(). Once connected, any thread may call it.
  virtual std::uint64_t bytes_sent() const { return 0; }
  // Makes every blocked and every later call fail. Any thread may call it, also during connect().
  virtual void interrupt() noexcept = 0;
};

// Makes the transport for ranks that run at those locations. Makes the same choice at every rank; may throw.
using TransportFactory = std::function<std::shared_ptr<Transport>(const RankLocations&)>;

}  // namespace ddprun::comm
