#include "launcher/attach/follower_queue.h"

#include <utility>

#include <fmt/format.h>

namespace ddprun {
namespace {

using Kind = AttachFrame::Kind;

bool is_output(Kind kind) {
  return kind == Kind::out || kind == Kind::err;
}

}  // namespace

void FollowerQueue::add(Kind kind, std::string_view content) {
  if (closed_) return;
  if (bytes_ + content.size() > max_bytes_) {
    skipped_ += content.size();
    return;
  }
  announce_skipped();
  push(kind, content);
}

void FollowerQueue::add_last(Kind kind, std::string_view content) {
  if (closed_) return;
  announce_skipped();
  push(kind, content);
  closed_ = true;
}

std::optional<AttachFrame> FollowerQueue::next() {
  if (frames_.empty()) announce_skipped();
  if (frames_.empty()) return std::nullopt;
  auto frame = std::move(frames_.front());
  frames_.pop_front();
  bytes_ -= frame.content.size();
  return frame;
}

std::size_t FollowerQueue::next_bytes() {
  if (frames_.empty()) announce_skipped();
  return frames_.front().content.size();
}

void FollowerQueue::announce_skipped() {
  if (skipped_ == 0) return;
  push(Kind::notice, fmt::format("{} bytes of rank {}'s output are left out here: they were not read in time",
                                 std::exchange(skipped_, 0), rank_));
}

// Small pieces of one stream become one frame, large ones several.
void FollowerQueue::push(Kind kind, std::string_view content) {
  bytes_ += content.size();
  while (is_output(kind) && !content.empty()) {
    const bool extends =
        !frames_.empty() && frames_.back().kind == kind && frames_.back().content.size() < RelayLimits::piece;
    if (!extends) frames_.push_back({kind, {}});
    auto& last = frames_.back().content;
    const auto part = content.substr(0, RelayLimits::piece - last.size());
    last += part;
    content.remove_prefix(part.size());
  }
  if (!is_output(kind)) frames_.push_back({kind, std::string(content)});
}

bool FollowerWindow::fits(std::size_t content_bytes, std::size_t limit) const {
  return in_flight_ + relayed_bytes({.content = {}}) + content_bytes <= limit;
}

}  // namespace ddprun
