#include "launcher/attach/recent_output.h"

#include <algorithm>

namespace ddprun {
namespace {

// Small writes are gathered in pieces of this size.
constexpr std::size_t piece_bytes = 2048;

void drop_broken_line(std::vector<OutputPiece>& pieces) {
  while (!pieces.empty()) {
    auto& bytes = pieces.front().bytes;
    const auto end = bytes.find('\n');
    if (end != std::string::npos) {
      bytes.erase(0, end + 1);
      if (bytes.empty()) pieces.erase(pieces.begin());
      return;
    }
    pieces.erase(pieces.begin());
  }
}

}  // namespace

void RecentOutput::renumber(int by) {
  std::map<int, Kept> ranks;
  for (auto& [rank, kept] : ranks_) ranks.emplace(rank + by, std::move(kept));
  ranks_ = std::move(ranks);
}

void RecentOutput::feed(int rank, Console::Stream stream, std::string_view bytes) {
  if (bytes.empty()) return;
  auto& kept = ranks_[rank];
  if (bytes.size() > max_bytes) {
    bytes.remove_prefix(bytes.size() - max_bytes);
    kept = {.pieces = {}, .bytes = 0, .former = 0, .complete = false, .round_complete = false};
  }
  const bool fits = kept.pieces.size() > kept.former && kept.pieces.back().stream == stream &&
                    kept.pieces.back().bytes.size() + bytes.size() <= piece_bytes;
  if (fits)
    kept.pieces.back().bytes += bytes;
  else
    kept.pieces.push_back({stream, std::string(bytes)});
  kept.bytes += bytes.size();
  drop_oldest(kept);
}

void RecentOutput::drop_oldest(Kept& kept) {
  while (kept.bytes > max_bytes) {
    kept.complete = false;
    kept.round_complete &= kept.former > 0;
    auto& oldest = kept.pieces.front().bytes;
    const auto excess = kept.bytes - max_bytes;
    if (excess < oldest.size()) {
      oldest.erase(0, excess);
      kept.bytes -= excess;
      return;
    }
    kept.bytes -= oldest.size();
    kept.pieces.pop_front();
    kept.former -= std::min<std::size_t>(kept.former, 1);
  }
}

void RecentOutput::begin_round() {
  for (auto& [rank, kept] : ranks_) {
    kept.former = kept.pieces.size();
    kept.round_complete = true;
  }
}

std::vector<OutputPiece> RecentOutput::last_of_round(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  const auto& kept = found->second;
  std::vector<OutputPiece> pieces(kept.pieces.begin() + static_cast<std::ptrdiff_t>(kept.former), kept.pieces.end());
  if (!kept.round_complete) drop_broken_line(pieces);
  return pieces;
}

std::vector<OutputPiece> RecentOutput::last(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  std::vector<OutputPiece> pieces(found->second.pieces.begin(), found->second.pieces.end());
  if (!found->second.complete) drop_broken_line(pieces);
  return pieces;
}

}  // namespace ddprun
