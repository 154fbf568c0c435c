#pragma once

#include <atomic>
#include <compare>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "rendezvous/store/store.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// Identifies the messages of one tag from one rank to another.
struct ChannelName {
  int sender = 0;
  int receiver = 0;
  int tag = 0;
  friend auto operator<=>(const ChannelName&, const ChannelName&) = default;
};
// The channel of a send or recv by this rank.
ChannelName channel_of(const Operation& operation, int rank);

// Limits how many channels a rank uses, because each takes device memory. Thread-safe.
class ChannelCount {
 public:
  static constexpr std::size_t max_channels = 64;
  // Throws Errc::unsupported for one channel too many.
  void add(const ChannelName& name);

 private:
  std::mutex mutex_;
  std::set<ChannelName> names_;
};

// The sends and receives of a rank. NCCL matches them by their order within a communicator and has no tags, so each
// channel is a communicator of its two ranks, on a stream of its own, created by its first message. Messages of
// different channels do not wait for each other or for collectives. References interrupted; outlives its transfers.
// Thread-safe. Transfers throw what Communicator throws.
class Channels {
 public:
  // checked: each message follows a small one with its size and type; a receiver that expects others throws
  // Errc::mismatch. interrupted: once set, operations in progress fail soon.
  Channels(int rank, bool checked, const std::atomic<bool>& interrupted);
  ~Channels();

  // device: the one whose memory is sent. store, prefix: the keys where the ranks of a channel exchange its id. Called
  // before the first start().
  void open(int device, std::shared_ptr<Store> store, const std::string& prefix);
  // Returns at once.
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);
  // Waits, until the deadline, for the delivery of all that was sent.
  void finish(Deadline deadline) noexcept;
  // Cancels the messages in progress. REQUIRES: interrupted is set.
  void stop() noexcept;

 private:
  class Channel;
  class ChannelTransfer;
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace ddprun::comm
