#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>

// Messages about single ranks that an agent sends to the agent of another node of its job, through the rendezvous
// server: the output of a rank, and signals to it. The asking agent chooses the number of a request; the server knows
// which node has the rank, and gives the request a number of its own on the way to that node.
namespace ddprun {

// The bounds of what one follower may have in flight: pieces that the asking agent has not taken yet. The sender keeps
// to `window`, so that little of the connection is in use by output, and to `final_window` once the workers have ended,
// since what they wrote last would otherwise come after the job result. The server enforces the latter.
struct RelayLimits {
  static constexpr std::size_t piece = std::size_t{16} * 1024;          // bytes of one RankOutput
  static constexpr std::size_t window = std::size_t{32} * 1024;         // bytes, as relayed_bytes() counts them
  static constexpr std::size_t final_window = std::size_t{320} * 1024;  // bytes
};

// Asks for the output of a rank: its last lines, then what it writes. The answer is any number of RankOutput. The
// request stays in force when a round puts the rank on another node.
struct FollowRank {
  std::uint64_t number = 0;
  int rank = 0;
  bool again = false;  // the follower has seen the output of earlier rounds
};
struct UnfollowRank {
  std::uint64_t number = 0;
};
struct RankOutput {
  enum class Kind : std::uint8_t {
    out,      // standard output of the worker
    err,      // standard error
    notice,   // a text for the user
    refused,  // why the rank is not or no longer followed; the last one
  };
  std::uint64_t number = 0;
  Kind kind = Kind::out;
  std::string content;
};
// The follower has read this much: as much again may be sent.
struct OutputTaken {
  std::uint64_t number = 0;
  std::uint32_t bytes = 0;
};
// A signal that somebody asks for. The texts are for messages.
struct RequestedSignal {
  int number = 0;
  std::string who;
  std::string why = {};  // empty: not given
};
// Asks to send the worker of a rank one signal. The answer is a SignalAnswer.
struct SignalRank {
  std::uint64_t number = 0;
  int rank = 0;
  RequestedSignal signal;
};
struct SignalAnswer {
  std::uint64_t number = 0;
  std::string problem;  // why it was not sent; empty if it was
};
using RelayMessage = std::variant<FollowRank, UnfollowRank, RankOutput, OutputTaken, SignalRank, SignalAnswer>;

// A piece counts with its frame, so that a rank that writes single bytes is bounded, too.
inline std::size_t relayed_bytes(const RankOutput& output) {
  return output.content.size() + 32;
}

struct RelayHandlers {
  std::function<void(const RelayMessage&)> received;
  // A session with a server has begun, which knows nothing of earlier requests.
  std::function<void()> connected;
};

}  // namespace ddprun
