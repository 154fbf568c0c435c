#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/agent_relay.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/membership/membership_message.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"
#include "rendezvous/succession/succession.h"

// The frames of a session between an agent and the rendezvous server: encoding and decoding, no I/O. SESSIONS.md has
// the layout, the limits and an example. A frame has exactly one encoding. Decoders throw Errc::protocol naming the
// field.
namespace ddprun {

inline constexpr std::uint16_t session_protocol_version = 13;

// The version in a JOIN, STATUS or STOP of any version, of which the first bytes are given; nullopt for other frames.
std::optional<std::uint16_t> announced_version(std::string_view frame_head);

struct SessionLimits {
  static constexpr std::uint32_t name = 1024;       // bytes of an id, host, address, program
  static constexpr std::uint32_t text = 16 * 1024;  // bytes of a message
  static constexpr std::uint32_t words = 1024;      // words of a command, each at most `name` bytes
  static constexpr std::int32_t nodes = 65536;      // nodes of a job
  static constexpr std::int32_t workers = 4096;     // workers of a node
  static constexpr std::uint32_t failures = 128;    // failures of a report, so that its frame stays below 8 MiB
  static constexpr std::uint32_t answer = 4 << 20;  // bytes of the answer to STATUS and STOP
  static constexpr std::int32_t signals = 64;       // the highest number of a signal
  static constexpr std::int64_t milliseconds = 1'000'000'000'000;
  static constexpr std::int64_t keep_alive_milliseconds =
      86'400'000;  // its product with the attempts must not overflow
  static constexpr std::int32_t keep_alive_attempts = 10'000;
  static constexpr std::uint64_t terms = 1'000'000'000'000;      // the highest term, and number of a set of nodes
  static constexpr std::int64_t generation = 1'000'000'000'000;  // the highest of a former round
};

// Frames from an agent to the server.
struct SessionJoin {
  NodeInfo node;
  JobPolicy policy;
};
struct SessionBeat {};  // a heartbeat; the server answers it, so that both sides see that the other is alive
// The answer to a ServerBeat, by which the node supports the server (ServerLease).
struct SessionSeen {
  std::int64_t sent_us = 0;  // of that beat
  ElectorateVersion known;   // the newest set of nodes that this node has been told of
};
struct SessionReady {
  std::int64_t generation = 0;
  std::uint16_t worker_store_port = 0;
};
struct SessionSuccess {
  std::int64_t generation = 0;
};
struct SessionFailure {
  std::int64_t generation = 0;
  std::int64_t sent_us = 0;  // the sender's clock at sending, to which its failures' time_us are relative
  Survivors survivors = Survivors::stopped;
  std::vector<WorkerFailure> failures;
};
// The answer to RecoveryAsked.
struct SessionRecovery {
  std::int64_t generation = 0;
  std::string refusal;  // why the workers cannot continue in their processes; empty: they can
};
struct SessionLeave {
  std::string reason;
};
// The node asks to leave the round and keeps its session; LeaveAnswered follows.
struct LeaveRequest {
  std::string reason;
};
struct SessionPreempted {
  std::int64_t generation = 0;
};
struct SessionNode {
  std::int64_t generation = 0;
  NodeReport report;
};
// Any client asks for the status of one job, or of all if the run id is empty. The session ends after the answer.
struct StatusRequest {
  std::string run_id;
};
// Any client, or an agent of the job, stops the job. An empty run id means the server's only job.
struct StopRequest {
  std::string run_id;
  std::string who;  // for messages
};
// To another agent of the job, which answers with VoteReply.
struct VoteAsked {
  std::string run_id;
  VoteRequest request;
};
// From the agent that has been elected, to another agent of the job, or to the server that is at the endpoint.
struct ServerElected {
  std::string run_id;
  ServerName server;
  bool decides = false;
  std::uint16_t port = 0;
};
// The messages of agent_relay.h go to the server, and from it to the agent that they concern.
using NodeFrame = std::variant<SessionJoin, SessionBeat, SessionReady, SessionSuccess, SessionFailure, SessionRecovery,
                               SessionLeave, LeaveRequest, SessionPreempted, SessionNode, StatusRequest, StopRequest,
                               WorkersRecoverable, SessionSeen, VoteAsked, ServerElected, FollowRank, UnfollowRank,
                               RankOutput, OutputTaken, SignalRank, SignalAnswer>;

// Frames from the server to an agent.
struct ServerBeat {          // answers SessionBeat
  std::int64_t sent_us = 0;  // by the server's monotonic clock
};
// The server that answers JOIN, where one can be elected in its place.
struct SessionServer {
  ServerName name;
  bool decides = false;
  std::int64_t sent_us = 0;  // as in ServerBeat
};
struct ElectorateConfirmed {
  ElectorateVersion version;
};
struct ServerMoved {  // another server has been elected: join it; the session ends
  HostPort address;
};
struct SessionShutdown {  // the server shuts down and may be restarted; the session ends
  std::string reason;
};
// RoundStarted on the wire: what the RoundProposed before it did not contain.
struct SessionStarted {
  std::int64_t generation = 0;
  std::string master_addr;
  std::uint16_t master_port = 0;
};
// The answer to STATUS and STOP.
struct RequestAnswer {
  std::string jobs;  // JSON (job_status.h)
};
using ServerFrame = std::variant<ServerBeat, SessionServer, ElectorateConfirmed, ServerMoved, VoteReply, JoinRefused,
                                 NodeDropped, RendezvousWaiting, RoundProposed, SessionStarted, RoundChanged,
                                 StandbyAsked, RecoveryAsked, WorkersReplaced, ReplacementRefused, LeaveAnswered,
                                 JobEnded, SessionShutdown, RequestAnswer, WorkersRecoverable, RoundResumed, FollowRank,
                                 UnfollowRank, RankOutput, OutputTaken, SignalRank, SignalAnswer>;

// Texts beyond their limit are cut. REQUIRES: the other limits are kept.
std::string encode(const NodeFrame& frame);
std::string encode(const ServerFrame& frame);

// Sets Round::self in an encoded RoundProposed or RoundChanged.
void set_round_self(std::string& frame, int self);

NodeFrame decode_node_frame(std::string_view bytes);
ServerFrame decode_server_frame(std::string_view bytes);

}  // namespace ddprun
