#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ddprun/rendezvous/membership/membership_message.h"

// The frames of a session between an agent and the rendezvous server: bytes to values and back, strict, no I/O.
// SESSIONS.md has the layout, the limits and an example. A frame has exactly one encoding: what decodes encodes to the
// same bytes. Decoders throw Errc::protocol naming the field.
namespace ddprun {

inline constexpr std::uint16_t session_protocol_version = 4;

struct SessionLimits {
  static constexpr std::uint32_t name = 1024;       // bytes of an id, host, address, program
  static constexpr std::uint32_t text = 16 * 1024;  // bytes of a message
  static constexpr std::int32_t nodes = 65536;      // of a job
  static constexpr std::int32_t workers = 4096;     // of a node
  static constexpr std::uint32_t failures = 128;    // of a report: a frame of them stays below 8 MiB
  static constexpr std::uint32_t answer = 4 << 20;  // bytes of what those who ask are told
  static constexpr std::int64_t milliseconds = 1'000'000'000'000;
  static constexpr std::int64_t keep_alive_milliseconds = 86'400'000;  // times the attempts: must not overflow
  static constexpr std::int32_t keep_alive_attempts = 10'000;
  static constexpr std::int64_t generation = 1'000'000'000'000;  // of a round that a node comes back from
};

// From an agent.
struct SessionJoin {
  NodeInfo node;
  JobPolicy policy;
};
struct SessionBeat {};  // the server sends it back, so that either side learns that the other is alive
struct SessionReady {
  std::int64_t generation = 0;
  std::uint16_t worker_store_port = 0;
};
struct SessionSuccess {
  std::int64_t generation = 0;
};
struct SessionFailure {
  std::int64_t generation = 0;
  std::int64_t sent_us = 0;  // the sender's clock when it sent this: what its time_us are to be compared with
  std::vector<WorkerFailure> failures;
};
struct SessionLeave {
  std::string reason;
};
struct SessionPreempted {
  std::int64_t generation = 0;
};
struct SessionWorkers {
  std::int64_t generation = 0;
  std::vector<WorkerReport> changed;
};
// From anybody: what becomes of one job, or of all where the run id is empty. Answered, and the session ends.
struct StatusRequest {
  std::string run_id;
};
// From anybody, an agent of the job included: the job is to end. An empty run id means the only job there is.
struct StopRequest {
  std::string run_id;
  std::string who;  // for people
};
using NodeFrame = std::variant<SessionJoin, SessionBeat, SessionReady, SessionSuccess, SessionFailure, SessionLeave,
                               SessionPreempted, SessionWorkers, StatusRequest, StopRequest>;

// From the server. The server goes away, and may be back: the reason, and the session ends.
struct SessionFarewell {
  std::string reason;
};
// The members are in the proposal; the start adds what was not known then.
struct SessionStarted {
  std::int64_t generation = 0;
  std::string master_addr;
  std::uint16_t master_port = 0;
};
// To who asked: the jobs concerned, as job_status.h writes them.
struct RequestAnswer {
  std::string jobs;
};
using ServerFrame = std::variant<SessionBeat, JoinRefused, NodeDropped, RendezvousWaiting, RoundProposed,
                                 SessionStarted, JobEnded, SessionFarewell, RequestAnswer>;

// Texts longer than the limit are cut; REQUIRES the other limits.
std::string encode(const NodeFrame& frame);
std::string encode(const ServerFrame& frame);

// Makes an encoded RoundProposed one for the member at this index.
void set_proposed_self(std::string& frame, int self);

NodeFrame decode_node_frame(std::string_view bytes);
ServerFrame decode_server_frame(std::string_view bytes);

}  // namespace ddprun
