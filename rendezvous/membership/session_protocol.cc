#include "rendezvous/membership/session_protocol.h"

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "common/bytes.h"
#include "common/error.h"
#include "rendezvous/membership/frame_codec.h"
#include "rendezvous/membership/session_parts.h"

namespace ddprun {
namespace {

using Limits = SessionLimits;
constexpr std::size_t self_offset = 1;  // the offset of `self` in PROPOSED and CHANGED, after the kind

// The first byte of a frame. A frame of nodes and one of servers may have the same.
template <class Frame>
struct Kind {
  std::uint8_t value;
};
constexpr std::tuple kinds{
    // from nodes
    Kind<SessionJoin>{0x01}, Kind<SessionReady>{0x02}, Kind<SessionSuccess>{0x03}, Kind<SessionFailure>{0x04},
    Kind<SessionLeave>{0x05}, Kind<SessionPreempted>{0x06}, Kind<SessionNode>{0x07}, Kind<SessionRecovery>{0x08},
    Kind<LeaveRequest>{0x09}, Kind<SessionBeat>{0x10}, Kind<SessionSeen>{0x12}, Kind<StatusRequest>{0x20},
    Kind<StopRequest>{0x21}, Kind<VoteAsked>{0x40}, Kind<ServerElected>{0x41},
    // from servers
    Kind<ServerBeat>{0x10}, Kind<JoinRefused>{0x81}, Kind<NodeDropped>{0x82}, Kind<RendezvousWaiting>{0x83},
    Kind<RoundProposed>{0x84}, Kind<SessionStarted>{0x85}, Kind<JobEnded>{0x86}, Kind<SessionShutdown>{0x87},
    Kind<RequestAnswer>{0x88}, Kind<RecoveryAsked>{0x89}, Kind<WorkersReplaced>{0x8A}, Kind<ReplacementRefused>{0x8B},
    Kind<LeaveAnswered>{0x8C}, Kind<RoundResumed>{0x8D}, Kind<RoundChanged>{0x8E}, Kind<SessionServer>{0x8F},
    Kind<ElectorateConfirmed>{0x90}, Kind<ServerMoved>{0x91}, Kind<StandbyAsked>{0x92}, Kind<VoteReply>{0xC0},
    // from both
    Kind<WorkersRecoverable>{0x11}, Kind<FollowRank>{0x30}, Kind<UnfollowRank>{0x31}, Kind<RankOutput>{0x32},
    Kind<OutputTaken>{0x33}, Kind<SignalRank>{0x34}, Kind<SignalAnswer>{0x35}};
template <class Frame>
constexpr std::uint8_t kind_of = std::get<Kind<Frame>>(kinds).value;

// ---- from nodes

template <class Codec>
void serialize_version(Codec& codec) {
  std::uint16_t version = session_protocol_version;
  codec.integer("version", version);
  if (version != session_protocol_version)
    throw make_error(Errc::unsupported,
                     "the agent has version {} of the session protocol, the rendezvous server version {}: run the "
                     "same ddprun on all nodes",
                     version, session_protocol_version);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionJoin> join) {
  serialize_version(codec);
  serialize(codec, join.node);
  serialize(codec, join.policy);
}

template <class Codec>
void serialize(Codec& /*codec*/, Field<Codec, SessionBeat> /*beat*/) {}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionSeen> seen) {
  codec.integer("time sent", seen.sent_us);
  serialize(codec, seen.known);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionReady> ready) {
  codec.integer("generation", ready.generation);
  codec.integer("port", ready.worker_store_port);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionSuccess> success) {
  codec.integer("generation", success.generation);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionFailure> failure) {
  codec.integer("generation", failure.generation);
  codec.integer("time sent", failure.sent_us);
  codec.enumeration("survivors", failure.survivors, Survivors::run_or_end);
  serialize(codec, failure.failures);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionRecovery> recovery) {
  codec.integer("generation", recovery.generation);
  codec.text("refusal", recovery.refusal, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionLeave> leave) {
  codec.text("reason", leave.reason, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, LeaveRequest> leave) {
  codec.text("reason", leave.reason, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionPreempted> preempted) {
  codec.integer("generation", preempted.generation);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionNode> node) {
  codec.integer("generation", node.generation);
  serialize(codec, node.report);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, StatusRequest> status) {
  serialize_version(codec);
  codec.text("run id", status.run_id, Limits::name);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, StopRequest> stop) {
  serialize_version(codec);
  codec.text("run id", stop.run_id, Limits::name);
  codec.text("who", stop.who, Limits::name);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, VoteAsked> asked) {
  serialize_version(codec);
  codec.text("run id", asked.run_id, Limits::name);
  codec.text("candidate", asked.request.candidate, Limits::name);
  codec.integer("term", asked.request.term, 0, Limits::terms);
  serialize(codec, asked.request.newest);
  codec.flag("trial", asked.request.trial);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, ServerElected> elected) {
  serialize_version(codec);
  codec.text("run id", elected.run_id, Limits::name);
  serialize(codec, elected.server);
  codec.flag("decides", elected.decides);
  codec.integer("port", elected.port);
}

// ---- from servers

template <class Codec>
void serialize(Codec& codec, Field<Codec, ServerBeat> beat) {
  codec.integer("time sent", beat.sent_us);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionServer> server) {
  serialize(codec, server.name);
  codec.flag("decides", server.decides);
  codec.integer("time sent", server.sent_us);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, ElectorateConfirmed> confirmed) {
  serialize(codec, confirmed.version);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, ServerMoved> moved) {
  std::uint16_t port = moved.address.port_or(0);
  codec.text("host", moved.address.host, Limits::name);
  codec.integer("port", port);
  if constexpr (Codec::reads) moved.address.port = port;
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, VoteReply> reply) {
  codec.integer("term", reply.term, 0, Limits::terms);
  codec.flag("trial", reply.trial);
  codec.flag("granted", reply.granted);
  codec.integer("last vote", reply.voted, 0, Limits::terms);
  codec.optional("follows a server", reply.server, [&](auto& server) { serialize(codec, server); });
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, JoinRefused> refused) {
  codec.text("text", refused.text, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, NodeDropped> dropped) {
  codec.flag("may return", dropped.may_return);
  codec.text("text", dropped.text, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RendezvousWaiting> waiting) {
  codec.text("text", waiting.text, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RoundProposed> proposed) {
  serialize(codec, proposed.round);
  codec.text("reason", proposed.reason, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionStarted> started) {
  codec.integer("generation", started.generation);
  codec.text("master address", started.master_addr, Limits::name);
  codec.integer("master port", started.master_port);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RoundChanged> change) {
  serialize(codec, change.round);
  codec.text("master address", change.round.master_addr, Limits::name);
  codec.integer("master port", change.round.master_port);
  codec.integer("group generation", change.round.group_generation, 1, Limits::generation);
  for (auto& member : change.round.members) serialize_names(codec, member.workers, member.nproc);
  const auto nodes = static_cast<int>(change.round.members.size());
  int least = 0;  // in order, so that each change has one encoding
  codec.list("newcomer count", change.newcomers, 0, change.round.members.size(), [&](auto& newcomer) {
    codec.integer("newcomer", newcomer, least, nodes - 1);
    least = newcomer + 1;
  });
  codec.flag("in order", change.in_order);
  codec.text("reason", change.reason, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, StandbyAsked> asked) {
  codec.integer("generation", asked.generation);
  codec.integer("world size", asked.world_size, 1, Limits::nodes * Limits::workers);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RoundResumed> resumed) {
  codec.integer("generation", resumed.generation);
  serialize(codec, resumed.electorate.version);
  serialize(codec, resumed.confirmed);
  codec.list("node count", resumed.electorate.nodes, 0, Limits::nodes,
             [&](auto& node) { codec.text("node id", node, Limits::name); });
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RecoveryAsked> asked) {
  codec.integer("generation", asked.generation);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, WorkersReplaced> replaced) {
  codec.integer("generation", replaced.generation);
  codec.integer("restarts used", replaced.restarts_used);
  serialize(codec, replaced.failures);
  codec.integer("group generation", replaced.group_generation, 0, Limits::generation);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, ReplacementRefused> refused) {
  codec.integer("generation", refused.generation);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, LeaveAnswered> answer) {
  codec.text("refusal", answer.refusal, Limits::text);
  codec.flag("round goes on", answer.round_goes_on);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, JobEnded> ended) {
  serialize(codec, ended.result);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SessionShutdown> shutdown) {
  codec.text("reason", shutdown.reason, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RequestAnswer> answer) {
  codec.text("answer", answer.jobs, Limits::answer);
}

// ---- from both

template <class Codec>
void serialize(Codec& codec, Field<Codec, WorkersRecoverable> recoverable) {
  codec.integer("generation", recoverable.generation);
  codec.flag("able", recoverable.able);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, FollowRank> follow) {
  codec.integer("number", follow.number);
  codec.integer("rank", follow.rank);
  codec.flag("again", follow.again);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, UnfollowRank> unfollow) {
  codec.integer("number", unfollow.number);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, RankOutput> output) {
  codec.integer("number", output.number);
  codec.enumeration("kind of output", output.kind, RankOutput::Kind::refused);
  codec.text("output", output.content, RelayLimits::piece);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, OutputTaken> taken) {
  codec.integer("number", taken.number);
  codec.integer("bytes taken", taken.bytes);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SignalRank> request) {
  codec.integer("number", request.number);
  codec.integer("rank", request.rank);
  codec.integer("signal", request.signal.number, 1, Limits::signals);
  codec.text("who", request.signal.who, Limits::name);
  codec.text("why", request.signal.why, Limits::text);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, SignalAnswer> answer) {
  codec.integer("number", answer.number);
  codec.text("problem", answer.problem, Limits::text);
}

// ---- any frame

template <class Frame>
std::string encode_any(const Frame& frame) {
  FrameWriter out;
  std::visit(
      [&](const auto& one) {
        out.integer("kind", kind_of<std::decay_t<decltype(one)>>);
        serialize(out, one);
      },
      frame);
  return out.take();
}

// Reads the frame that has this kind among those of the variant, from the one with this index on.
template <class Frame, std::size_t index = 0>
Frame read_frame(std::uint8_t kind, FrameReader& in) {
  if constexpr (index == std::variant_size_v<Frame>) {
    throw make_error(Errc::protocol, "session frame of unknown kind {:#04x}", kind);
  } else {
    using One = std::variant_alternative_t<index, Frame>;
    if (kind != kind_of<One>) return read_frame<Frame, index + 1>(kind, in);
    One one;
    serialize(in, one);
    return one;
  }
}

template <class Frame>
Frame decode_any(std::string_view bytes) {
  FrameReader in(bytes);
  std::uint8_t kind = 0;
  in.integer("kind", kind);
  Frame frame = read_frame<Frame>(kind, in);
  in.finish();
  return frame;
}

}  // namespace

std::optional<std::uint16_t> announced_version(std::string_view frame_head) {
  if (frame_head.size() < 1 + sizeof(std::uint16_t)) return std::nullopt;
  const auto kind = static_cast<std::uint8_t>(frame_head[0]);
  if (kind != kind_of<SessionJoin> && kind != kind_of<StatusRequest> && kind != kind_of<StopRequest>)
    return std::nullopt;
  return get_le<std::uint16_t>(frame_head, 1);
}

std::string encode(const NodeFrame& frame) {
  return encode_any(frame);
}

std::string encode(const ServerFrame& frame) {
  return encode_any(frame);
}

void set_round_self(std::string& frame, int self) {
  std::string bytes;
  put_le(bytes, static_cast<std::uint32_t>(self));
  frame.replace(self_offset, bytes.size(), bytes);
}

NodeFrame decode_node_frame(std::string_view bytes) {
  return decode_any<NodeFrame>(bytes);
}

ServerFrame decode_server_frame(std::string_view bytes) {
  return decode_any<ServerFrame>(bytes);
}

}  // namespace ddprun
