#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/attach/attach_protocol.h"
#include "rendezvous/agent_relay.h"

namespace ddprun {

// The frames that one follower of a rank has not been sent yet. It is bounded: output that does not fit is left out,
// and a notice takes its place that says how much it was.
//
// A value, without I/O. Not thread-safe. Sizes are bytes of contents.
class FollowerQueue {
 public:
  static constexpr std::size_t default_bytes = std::size_t{256} * 1024;

  explicit FollowerQueue(int rank, std::size_t max_bytes = default_bytes) : rank_(rank), max_bytes_(max_bytes) {}

  // Does nothing after add_last().
  void add(AttachFrame::Kind kind, std::string_view content);
  // The last frame, which always fits.
  void add_last(AttachFrame::Kind kind, std::string_view content);

  bool empty() const { return frames_.empty() && skipped_ == 0; }
  bool closed() const { return closed_; }
  // Returns whether there is space for the next part of a file, which keeps what a slow follower has not read.
  bool wants_more() const { return !closed_ && bytes_ < max_bytes_ / 2; }
  // Takes the next frame; the content of one that may be split has at most RelayLimits::piece bytes.
  std::optional<AttachFrame> next();
  // Returns the next frame's size without taking it. REQUIRES: !empty()
  std::size_t next_bytes();

 private:
  void announce_skipped();
  void push(AttachFrame::Kind kind, std::string_view content);

  int rank_;
  std::size_t max_bytes_;
  std::deque<AttachFrame> frames_;
  std::size_t bytes_ = 0;
  std::size_t skipped_ = 0;  // bytes of output that did not fit
  bool closed_ = false;
};

// The output that is in flight to a follower on another node: sent, and not known to be taken. A value, without I/O.
class FollowerWindow {
 public:
  // Returns whether no more than limit is in flight with a piece of this size.
  bool fits(std::size_t content_bytes, std::size_t limit) const;
  void sent(const RankOutput& output) { in_flight_ += relayed_bytes(output); }
  void taken(std::size_t bytes) { in_flight_ -= bytes < in_flight_ ? bytes : in_flight_; }

 private:
  std::size_t in_flight_ = 0;
};

}  // namespace ddprun
