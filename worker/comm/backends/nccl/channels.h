#pragma once

#include <atomic>
#include <compare>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::comm {

// The way of one rank's messages of one tag to another rank.
struct ChannelName {
  int sender = 0;
  int receiver = 0;
  int tag = 0;
  friend auto operator<=>(const ChannelName&, const ChannelName&) = default;
};
// Of a send or recv by this rank.
ChannelName channel_of(const Operation& operation, int rank);

// How many channels a rank may use: each costs memory of the device.
class ChannelCount {
 public:
  static constexpr std::size_t most = 64;
  // Throws Errc::unsupported for one too many. Thread-safe.
  void note(const ChannelName& name);

 private:
  std::mutex mutex_;
  std::set<ChannelName> names_;
};

// The sends and receives of a rank. NCCL matches them by their order within a communicator, and knows no tags: so each
// channel is a communicator of its two ranks, on a stream of its own, formed by its first message. Messages of
// different channels go beside each other and beside the collectives. Thread-safe.
class Channels {
 public:
  // checked: each message goes behind a smaller one that says what it is, and one that is not expected is refused with
  // Errc::mismatch. interrupted: what is under way fails soon after it was set.
  Channels(int rank, bool checked, const std::atomic<bool>& interrupted);
  ~Channels();

  // Over memory of the device; where the two ranks of a channel meet. Before the first start().
  void open(int device, std::shared_ptr<Store> store, const std::string& prefix);
  // Returns at once.
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);
  // A goodbye: all that was sent arrives first, by the deadline.
  void finish(Deadline deadline) noexcept;
  // Ends what is under way; after interrupted was set.
  void stop() noexcept;

 private:
  class Channel;
  class ChannelTransfer;
  struct Content;
  const std::unique_ptr<Content> content_;
};

}  // namespace ddprun::comm
