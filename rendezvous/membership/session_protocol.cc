#include "rendezvous/membership/session_protocol.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/bytes.h"
#include "common/error.h"

namespace ddprun {
namespace {

enum class Kind : std::uint8_t {
  join = 0x01,
  ready = 0x02,
  success = 0x03,
  failure = 0x04,
  leave = 0x05,
  preempted = 0x06,
  node = 0x07,
  recovery = 0x08,
  ask_leave = 0x09,
  beat = 0x10,
  recoverable = 0x11,
  seen = 0x12,
  status = 0x20,
  stop = 0x21,
  follow = 0x30,
  unfollow = 0x31,
  output = 0x32,
  taken = 0x33,
  signal = 0x34,
  signalled = 0x35,
  vote_asked = 0x40,
  elected = 0x41,
  refused = 0x81,
  dropped = 0x82,
  waiting = 0x83,
  proposed = 0x84,
  started = 0x85,
  ended = 0x86,
  shutdown = 0x87,
  answer = 0x88,
  recovery_asked = 0x89,
  replaced = 0x8A,
  not_replaced = 0x8B,
  may_leave = 0x8C,
  resumed = 0x8D,
  changed = 0x8E,
  server = 0x8F,
  confirmed = 0x90,
  moved = 0x91,
  vote = 0xC0,
};

using Limits = SessionLimits;
constexpr std::int32_t any_int = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t any_long = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t self_offset = 1;  // the offset of `self` in PROPOSED and CHANGED, after the kind

class Writer {
 public:
  explicit Writer(Kind kind) { integer(static_cast<std::uint8_t>(kind)); }

  template <class T>
  void integer(T value) {
    put_le(out_, value);
  }
  void text(std::string_view value, std::uint32_t limit) {
    value = value.substr(0, limit);
    integer(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  void duration(std::chrono::milliseconds value) { integer(static_cast<std::int64_t>(value.count())); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T integer(const char* field, T low, T high) {
    if (rest_.size() < sizeof(T)) throw make_error(Errc::protocol, "session frame ends within {}", field);
    const T value = get_le<T>(rest_);
    rest_.remove_prefix(sizeof(T));
    if (value < low || value > high)
      throw make_error(Errc::protocol, "session frame: {} is {}, not from {} to {}", field, value, low, high);
    return value;
  }
  std::string text(const char* field, std::uint32_t limit) {
    const auto size = integer<std::uint32_t>(field, 0, limit);
    if (rest_.size() < size) throw make_error(Errc::protocol, "session frame ends within {}", field);
    std::string value(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return value;
  }
  std::chrono::milliseconds duration(const char* field, std::int64_t low, std::int64_t high = Limits::milliseconds) {
    return std::chrono::milliseconds(integer<std::int64_t>(field, low, high));
  }
  bool flag(const char* field) { return integer<std::uint8_t>(field, 0, 1) != 0; }
  void finish() const {
    if (!rest_.empty()) throw make_error(Errc::protocol, "session frame: {} bytes after its end", rest_.size());
  }

 private:
  std::string_view rest_;
};

// ---- parts of frames

void write(Writer& out, const std::vector<std::string>& command) {
  const auto count = std::min<std::size_t>(command.size(), Limits::words);
  out.integer(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) out.text(command[i], Limits::name);
}

std::vector<std::string> read_command(Reader& in) {
  const auto count = in.integer<std::uint32_t>("words of a command", 0, Limits::words);
  std::vector<std::string> command;
  for (std::uint32_t i = 0; i < count; ++i) command.push_back(in.text("word of a command", Limits::name));
  return command;
}

void write(Writer& out, const ElectorateVersion& version) {
  out.integer<std::uint64_t>(version.term);
  out.integer<std::uint64_t>(version.number);
}

ElectorateVersion read_version(Reader& in) {
  const auto term = in.integer<std::uint64_t>("term", 0, Limits::terms);
  return {.term = term, .number = in.integer<std::uint64_t>("number of a set of nodes", 0, Limits::terms)};
}

void write(Writer& out, const ServerName& server) {
  out.text(server.node, Limits::name);
  out.integer<std::uint64_t>(server.term);
  write(out, server.inherited);
}

ServerName read_server_name(Reader& in) {
  auto node = in.text("server", Limits::name);
  const auto term = in.integer<std::uint64_t>("term", 0, Limits::terms);
  return {.node = std::move(node), .term = term, .inherited = read_version(in)};
}

std::uint16_t read_port(Reader& in, const char* field) {
  return in.integer<std::uint16_t>(field, 0, std::numeric_limits<std::uint16_t>::max());
}

void write(Writer& out, const NodeInfo& node) {
  out.text(node.id, Limits::name);
  out.text(node.host, Limits::name);
  out.text(node.address, Limits::name);
  out.integer<std::int32_t>(node.nproc);
  out.integer<std::int32_t>(node.node_rank.value_or(-1));
  write(out, node.command);
  out.integer(node.port);
  out.integer<std::uint8_t>(node.serves);
  out.integer<std::int64_t>(node.former ? node.former->generation : -1);
  if (!node.former) return;
  out.integer<std::int32_t>(node.former->group_rank);
  out.integer<std::int32_t>(node.former->restarts_used);
  out.integer<std::int32_t>(node.former->nodes);
  if (node.former->nodes == 0) return;
  out.text(node.former->first, Limits::name);
  out.text(node.former->master_addr, Limits::name);
  out.integer<std::uint16_t>(node.former->master_port);
  out.integer<std::uint64_t>(node.former->group_generation);
}

std::optional<FormerRound> read_former(Reader& in) {
  const auto generation = in.integer<std::int64_t>("former generation", -1, Limits::generation);
  if (generation < 0) return std::nullopt;
  FormerRound former{.generation = generation,
                     .group_rank = in.integer<std::int32_t>("former group rank", 0, Limits::nodes - 1),
                     .restarts_used = in.integer<std::int32_t>("former restarts", 0, any_int),
                     .nodes = in.integer<std::int32_t>("former nodes", 0, Limits::nodes),
                     .first = {},
                     .master_addr = {}};
  if (former.nodes == 0) return former;
  if (former.group_rank >= former.nodes)
    throw make_error(Errc::protocol, "session frame: former group rank {} of {} nodes", former.group_rank,
                     former.nodes);
  former.first = in.text("former group rank 0", Limits::name);
  former.master_addr = in.text("former master address", Limits::name);
  former.master_port = in.integer<std::uint16_t>("former master port", 0, std::numeric_limits<std::uint16_t>::max());
  former.group_generation = in.integer<std::uint64_t>("former group generation", 0, Limits::generation);
  return former;
}

NodeInfo read_node(Reader& in) {
  NodeInfo node{.id = in.text("node id", Limits::name),
                .host = in.text("host", Limits::name),
                .address = in.text("address", Limits::name),
                .nproc = in.integer<std::int32_t>("nproc", 1, Limits::workers)};
  const auto rank = in.integer<std::int32_t>("node rank", -1, Limits::nodes - 1);
  if (rank >= 0) node.node_rank = rank;
  node.command = read_command(in);
  node.port = read_port(in, "port for elections");
  node.serves = in.flag("serves");
  node.former = read_former(in);
  if (node.id.empty()) throw make_error(Errc::protocol, "session frame: the node id is empty");
  return node;
}

void write(Writer& out, const JobPolicy& policy) {
  out.text(policy.run_id, Limits::name);
  out.text(policy.program, Limits::name);
  out.integer<std::int32_t>(policy.min_nodes);
  out.integer<std::int32_t>(policy.max_nodes);
  out.integer<std::uint8_t>(policy.fixed_ranks);
  out.integer<std::uint8_t>(policy.agent_store);
  out.integer<std::uint8_t>(policy.mpi);
  out.integer<std::int32_t>(policy.max_restarts);
  out.duration(policy.last_call);
  out.duration(policy.join_timeout);
  out.duration(policy.keep_alive_interval);
  out.integer<std::int32_t>(policy.keep_alive_max_attempt);
}

JobPolicy read_policy(Reader& in) {
  JobPolicy policy{.run_id = in.text("run id", Limits::name), .program = in.text("program", Limits::name)};
  policy.min_nodes = in.integer<std::int32_t>("min nodes", 1, Limits::nodes);
  policy.max_nodes = in.integer<std::int32_t>("max nodes", policy.min_nodes, Limits::nodes);
  policy.fixed_ranks = in.flag("fixed ranks");
  policy.agent_store = in.flag("agent store");
  policy.mpi = in.flag("MPI");
  policy.max_restarts = in.integer<std::int32_t>("max restarts", 0, any_int);
  policy.last_call = in.duration("last call", 0);
  policy.join_timeout = in.duration("join timeout", 0);
  policy.keep_alive_interval = in.duration("keep-alive interval", 1, Limits::keep_alive_milliseconds);
  policy.keep_alive_max_attempt = in.integer<std::int32_t>("keep-alive attempts", 1, Limits::keep_alive_attempts);
  if (policy.fixed_ranks && policy.min_nodes != policy.max_nodes)
    throw make_error(Errc::protocol, "session frame: fixed ranks with {} to {} nodes", policy.min_nodes,
                     policy.max_nodes);
  return policy;
}

void write(Writer& out, const WorkerFailure& failure) {
  out.integer<std::int32_t>(failure.rank);
  out.integer<std::int32_t>(failure.local_rank);
  out.integer<std::int32_t>(failure.group_rank);
  out.text(failure.host, Limits::name);
  out.integer<std::int64_t>(failure.pid);
  out.integer<std::int32_t>(failure.exit_code);
  out.integer<std::int32_t>(failure.signal_number);
  out.integer<std::int64_t>(failure.time_us);
  out.text(failure.message, Limits::text);
  out.text(failure.last_lines, Limits::text);
  out.text(failure.error_file, Limits::text);
  out.text(failure.cause, Limits::name);
  out.text(failure.label, Limits::name);
  out.integer<std::uint8_t>(failure.consequence);
  out.integer<std::uint8_t>(failure.usage_error);
}

WorkerFailure read_failure(Reader& in) {
  return {.rank = in.integer<std::int32_t>("rank", 0, any_int),
          .local_rank = in.integer<std::int32_t>("local rank", 0, any_int),
          .group_rank = in.integer<std::int32_t>("group rank", 0, any_int),
          .host = in.text("host", Limits::name),
          .pid = in.integer<std::int64_t>("pid", 0, any_long),
          .exit_code = in.integer<std::int32_t>("exit code", 0, 255),
          .signal_number = in.integer<std::int32_t>("signal", 0, 127),
          .time_us = in.integer<std::int64_t>("time", 0, any_long),
          .message = in.text("message", Limits::text),
          .last_lines = in.text("last lines", Limits::text),
          .error_file = in.text("error file", Limits::text),
          .cause = in.text("cause", Limits::name),
          .label = in.text("label", Limits::name),
          .consequence = in.flag("consequence"),
          .usage_error = in.flag("usage error")};
}

void write(Writer& out, const std::vector<WorkerFailure>& failures) {
  // The first ones suffice, and a report of all workers of a very large node would not fit a frame.
  const auto count = std::min<std::size_t>(failures.size(), Limits::failures);
  out.integer(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) write(out, failures[i]);
}

std::vector<WorkerFailure> read_failures(Reader& in) {
  const auto count = in.integer<std::uint32_t>("failure count", 0, Limits::failures);
  std::vector<WorkerFailure> failures;  // no reserve(): the count is not trusted
  for (std::uint32_t i = 0; i < count; ++i) failures.push_back(read_failure(in));
  return failures;
}

constexpr double TrainingReport::*training_figures[] = {&TrainingReport::loss,         &TrainingReport::samples_per_s,
                                                        &TrainingReport::seconds_left, &TrainingReport::lateness,
                                                        &TrainingReport::step_seconds, &TrainingReport::data,
                                                        &TrainingReport::compute,      &TrainingReport::communication};

void write(Writer& out, const TrainingReport& training) {
  out.integer<std::int64_t>(training.step);
  out.integer<std::int64_t>(training.total_steps);
  out.integer<std::int64_t>(training.epoch);
  for (const auto figure : training_figures) out.integer(std::bit_cast<std::int64_t>(training.*figure));
}

TrainingReport read_training(Reader& in) {
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  TrainingReport training{.step = in.integer<std::int64_t>("step", 0, any_long),
                          .total_steps = in.integer<std::int64_t>("steps", 0, any_long),
                          .epoch = in.integer<std::int64_t>("epoch", 0, any_long)};
  for (const auto figure : training_figures)
    training.*figure = std::bit_cast<double>(in.integer<std::int64_t>("figure", lowest, any_long));
  return training;
}

constexpr double NodeUsage::*usage_figures[] = {&NodeUsage::busy, &NodeUsage::received, &NodeUsage::sent};
constexpr std::int64_t NodeUsage::*usage_sizes[] = {&NodeUsage::memory, &NodeUsage::memory_used,
                                                    &NodeUsage::shared_memory, &NodeUsage::shared_memory_used};

void write(Writer& out, const NodeUsage& usage) {
  out.integer<std::int32_t>(usage.processors);
  for (const auto figure : usage_figures) out.integer(std::bit_cast<std::int64_t>(usage.*figure));
  for (const auto size : usage_sizes) out.integer<std::int64_t>(usage.*size);
}

NodeUsage read_usage(Reader& in) {
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  NodeUsage usage{.processors = in.integer<std::int32_t>("processors", 0, any_int)};
  for (const auto figure : usage_figures)
    usage.*figure = std::bit_cast<double>(in.integer<std::int64_t>("figure", lowest, any_long));
  for (const auto size : usage_sizes) usage.*size = in.integer<std::int64_t>("size", 0, any_long);
  return usage;
}

void write(Writer& out, const WorkerReport& status) {
  out.integer<std::int32_t>(status.local_rank);
  out.integer<std::int64_t>(status.pid);
  out.integer<std::uint8_t>(static_cast<std::uint8_t>(status.state));
  out.integer<std::int32_t>(status.exit_code);
  out.integer<std::int32_t>(status.signal_number);
  out.integer<std::uint8_t>(status.training ? 1 : 0);
  if (status.training) write(out, *status.training);
}

WorkerReport read_worker(Reader& in) {
  constexpr auto last_state = static_cast<std::uint8_t>(WorkerReport::State::ended);
  WorkerReport worker{.local_rank = in.integer<std::int32_t>("local rank", 0, Limits::workers - 1),
                      .pid = in.integer<std::int64_t>("pid", 0, any_long),
                      .state = static_cast<WorkerReport::State>(in.integer<std::uint8_t>("state", 0, last_state)),
                      .exit_code = in.integer<std::int32_t>("exit code", 0, 255),
                      .signal_number = in.integer<std::int32_t>("signal", 0, 127)};
  if (in.flag("tells of training")) worker.training = read_training(in);
  return worker;
}

// group_rank, first_rank and world_size follow from the order and are not sent; the master address is not known yet.
void write(Writer& out, const Round& round) {
  out.integer(static_cast<std::uint32_t>(round.self));
  out.integer<std::int64_t>(round.generation);
  out.integer<std::int32_t>(round.restarts_used);
  write(out, round.electorate);
  write(out, round.confirmed);
  out.integer(static_cast<std::uint32_t>(round.members.size()));
  for (const auto& member : round.members) {
    out.text(member.node_id, Limits::name);
    out.text(member.host, Limits::name);
    out.text(member.address, Limits::name);
    out.integer(member.port);
    out.integer<std::int32_t>(member.nproc);
  }
  out.integer<std::uint8_t>(round.commands.has_value());
  if (!round.commands) return;
  write(out, round.commands->first);
  out.integer(static_cast<std::uint32_t>(round.commands->other));
  write(out, round.commands->others);
  out.integer(static_cast<std::uint32_t>(round.commands->count));
}

CommandDifference read_command_difference(Reader& in, std::uint32_t members) {
  CommandDifference difference{.first = read_command(in)};
  difference.other = static_cast<int>(in.integer<std::uint32_t>("node with another command", 0, members - 1));
  difference.others = read_command(in);
  difference.count = static_cast<int>(in.integer<std::uint32_t>("nodes with other commands", 1, members));
  return difference;
}

Round read_round(Reader& in) {
  Round round;
  const auto self = in.integer<std::uint32_t>("self", 0, Limits::nodes - 1);
  round.generation = in.integer<std::int64_t>("generation", 0, any_long);
  round.restarts_used = in.integer<std::int32_t>("restarts used", 0, any_int);
  round.electorate = read_version(in);
  round.confirmed = read_version(in);
  const auto count = in.integer<std::uint32_t>("member count", self + 1, Limits::nodes);
  round.self = static_cast<int>(self);
  for (std::uint32_t i = 0; i < count; ++i) {
    RoundMember member{.node_id = in.text("node id", Limits::name),
                       .host = in.text("host", Limits::name),
                       .address = in.text("address", Limits::name),
                       .port = read_port(in, "port for elections"),
                       .group_rank = static_cast<int>(i),
                       .nproc = in.integer<std::int32_t>("nproc", 1, Limits::workers),
                       .first_rank = round.world_size};
    round.world_size += member.nproc;
    round.members.push_back(std::move(member));
  }
  if (in.flag("commands differ")) round.commands = read_command_difference(in, count);
  return round;
}

void write(Writer& out, const JobResult& result) {
  out.integer<std::uint8_t>(result.success);
  out.integer<std::int32_t>(result.exit_code);
  out.text(result.reason, Limits::text);
  write(out, result.failures);
}

JobResult read_job_result(Reader& in) {
  return {.success = in.flag("success"),
          .exit_code = in.integer<std::int32_t>("exit code", 0, 255),
          .reason = in.text("reason", Limits::text),
          .failures = read_failures(in)};
}

// ---- one frame each

std::string encode_one(const SessionJoin& frame) {
  Writer out(Kind::join);
  out.integer(session_protocol_version);
  write(out, frame.node);
  write(out, frame.policy);
  return out.take();
}
std::string encode_one(const SessionBeat&) {
  return Writer(Kind::beat).take();
}
std::string encode_one(const SessionSeen& frame) {
  Writer out(Kind::seen);
  out.integer(frame.sent_us);
  write(out, frame.known);
  return out.take();
}
std::string encode_one(const VoteAsked& frame) {
  Writer out(Kind::vote_asked);
  out.integer(session_protocol_version);
  out.text(frame.run_id, Limits::name);
  out.text(frame.request.candidate, Limits::name);
  out.integer(frame.request.term);
  write(out, frame.request.newest);
  out.integer<std::uint8_t>(frame.request.trial);
  return out.take();
}
std::string encode_one(const ServerElected& frame) {
  Writer out(Kind::elected);
  out.integer(session_protocol_version);
  out.text(frame.run_id, Limits::name);
  write(out, frame.server);
  out.integer<std::uint8_t>(frame.decides);
  out.integer(frame.port);
  return out.take();
}
std::string encode_one(const ServerBeat& frame) {
  Writer out(Kind::beat);
  out.integer(frame.sent_us);
  return out.take();
}
std::string encode_one(const SessionServer& frame) {
  Writer out(Kind::server);
  write(out, frame.name);
  out.integer<std::uint8_t>(frame.decides);
  out.integer(frame.sent_us);
  return out.take();
}
std::string encode_one(const ElectorateConfirmed& frame) {
  Writer out(Kind::confirmed);
  write(out, frame.version);
  return out.take();
}
std::string encode_one(const ServerMoved& frame) {
  Writer out(Kind::moved);
  out.text(frame.address.host, Limits::name);
  out.integer(frame.address.port_or(0));
  return out.take();
}
std::string encode_one(const VoteReply& frame) {
  Writer out(Kind::vote);
  out.integer(frame.term);
  out.integer<std::uint8_t>(frame.trial);
  out.integer<std::uint8_t>(frame.granted);
  out.integer(frame.voted);
  out.integer<std::uint8_t>(frame.server.has_value());
  if (frame.server) write(out, *frame.server);
  return out.take();
}
std::string encode_one(const SessionReady& frame) {
  Writer out(Kind::ready);
  out.integer(frame.generation);
  out.integer(frame.worker_store_port);
  return out.take();
}
std::string encode_one(const SessionSuccess& frame) {
  Writer out(Kind::success);
  out.integer(frame.generation);
  return out.take();
}
std::string encode_one(const SessionFailure& frame) {
  Writer out(Kind::failure);
  out.integer(frame.generation);
  out.integer(frame.sent_us);
  out.integer(static_cast<std::uint8_t>(frame.survivors));
  write(out, frame.failures);
  return out.take();
}
std::string encode_text(Kind kind, std::string_view text) {
  Writer out(kind);
  out.text(text, Limits::text);
  return out.take();
}
std::string encode_one(const SessionLeave& frame) {
  return encode_text(Kind::leave, frame.reason);
}
std::string encode_one(const LeaveRequest& frame) {
  return encode_text(Kind::ask_leave, frame.reason);
}
std::string encode_one(const SessionRecovery& frame) {
  Writer out(Kind::recovery);
  out.integer(frame.generation);
  out.text(frame.refusal, Limits::text);
  return out.take();
}
std::string encode_one(const SessionPreempted& frame) {
  Writer out(Kind::preempted);
  out.integer(frame.generation);
  return out.take();
}
std::string encode_one(const SessionNode& frame) {
  const auto& report = frame.report;
  Writer out(Kind::node);
  out.integer(frame.generation);
  out.integer<std::int32_t>(report.replaced);
  out.integer(static_cast<std::uint32_t>(report.workers.size()));
  for (const auto& worker : report.workers) write(out, worker);
  out.integer<std::uint8_t>(report.usage ? 1 : 0);
  if (report.usage) write(out, *report.usage);
  return out.take();
}
std::string encode_one(const StatusRequest& frame) {
  Writer out(Kind::status);
  out.integer(session_protocol_version);
  out.text(frame.run_id, Limits::name);
  return out.take();
}
std::string encode_one(const StopRequest& frame) {
  Writer out(Kind::stop);
  out.integer(session_protocol_version);
  out.text(frame.run_id, Limits::name);
  out.text(frame.who, Limits::name);
  return out.take();
}
std::string encode_one(const JoinRefused& frame) {
  return encode_text(Kind::refused, frame.text);
}
std::string encode_one(const NodeDropped& frame) {
  Writer out(Kind::dropped);
  out.integer<std::uint8_t>(frame.may_return);
  out.text(frame.text, Limits::text);
  return out.take();
}
std::string encode_one(const SessionShutdown& frame) {
  return encode_text(Kind::shutdown, frame.reason);
}
std::string encode_one(const RendezvousWaiting& frame) {
  return encode_text(Kind::waiting, frame.text);
}
std::string encode_one(const RoundProposed& frame) {
  Writer out(Kind::proposed);
  write(out, frame.round);
  out.text(frame.reason, Limits::text);
  return out.take();
}
std::string encode_one(const RoundChanged& frame) {
  Writer out(Kind::changed);
  write(out, frame.round);
  out.text(frame.round.master_addr, Limits::name);
  out.integer(frame.round.master_port);
  out.integer(frame.round.group_generation);
  out.integer(static_cast<std::uint32_t>(frame.newcomers.size()));
  for (const int group_rank : frame.newcomers) out.integer(static_cast<std::uint32_t>(group_rank));
  out.text(frame.reason, Limits::text);
  return out.take();
}
std::string encode_one(const SessionStarted& frame) {
  Writer out(Kind::started);
  out.integer(frame.generation);
  out.text(frame.master_addr, Limits::name);
  out.integer(frame.master_port);
  return out.take();
}
std::string encode_one(const WorkersRecoverable& frame) {
  Writer out(Kind::recoverable);
  out.integer(frame.generation);
  out.integer<std::uint8_t>(frame.able);
  return out.take();
}
std::string encode_one(const RoundResumed& frame) {
  Writer out(Kind::resumed);
  out.integer(frame.generation);
  write(out, frame.electorate.version);
  write(out, frame.confirmed);
  out.integer(static_cast<std::uint32_t>(frame.electorate.nodes.size()));
  for (const auto& node : frame.electorate.nodes) out.text(node, Limits::name);
  return out.take();
}
std::string encode_one(const RecoveryAsked& frame) {
  Writer out(Kind::recovery_asked);
  out.integer(frame.generation);
  return out.take();
}
std::string encode_one(const WorkersReplaced& frame) {
  Writer out(Kind::replaced);
  out.integer(frame.generation);
  out.integer<std::int32_t>(frame.restarts_used);
  write(out, frame.failures);
  out.integer(frame.group_generation);
  return out.take();
}
std::string encode_one(const ReplacementRefused& frame) {
  Writer out(Kind::not_replaced);
  out.integer(frame.generation);
  return out.take();
}
std::string encode_one(const LeaveAnswered& frame) {
  Writer out(Kind::may_leave);
  out.text(frame.refusal, Limits::text);
  out.integer<std::uint8_t>(frame.round_goes_on);
  return out.take();
}
std::string encode_one(const JobEnded& frame) {
  Writer out(Kind::ended);
  write(out, frame.result);
  return out.take();
}

std::string encode_one(const RequestAnswer& frame) {
  Writer out(Kind::answer);
  out.text(frame.jobs, Limits::answer);
  return out.take();
}

std::string encode_one(const FollowRank& frame) {
  Writer out(Kind::follow);
  out.integer(frame.number);
  out.integer<std::int32_t>(frame.rank);
  out.integer<std::uint8_t>(frame.again);
  return out.take();
}
std::string encode_one(const UnfollowRank& frame) {
  Writer out(Kind::unfollow);
  out.integer(frame.number);
  return out.take();
}
std::string encode_one(const RankOutput& frame) {
  Writer out(Kind::output);
  out.integer(frame.number);
  out.integer(static_cast<std::uint8_t>(frame.kind));
  out.text(frame.content, RelayLimits::piece);
  return out.take();
}
std::string encode_one(const OutputTaken& frame) {
  Writer out(Kind::taken);
  out.integer(frame.number);
  out.integer(frame.bytes);
  return out.take();
}
std::string encode_one(const SignalRank& frame) {
  Writer out(Kind::signal);
  out.integer(frame.number);
  out.integer<std::int32_t>(frame.rank);
  out.integer<std::int32_t>(frame.signal_number);
  out.text(frame.who, Limits::name);
  return out.take();
}
std::string encode_one(const SignalAnswer& frame) {
  Writer out(Kind::signalled);
  out.integer(frame.number);
  out.text(frame.problem, Limits::text);
  return out.take();
}

}  // namespace

std::optional<std::uint16_t> announced_version(std::string_view frame_head) {
  if (frame_head.size() < 1 + sizeof(std::uint16_t)) return std::nullopt;
  const auto kind = static_cast<Kind>(frame_head[0]);
  if (kind != Kind::join && kind != Kind::status && kind != Kind::stop) return std::nullopt;
  return get_le<std::uint16_t>(frame_head, 1);
}

namespace {

void check_version(Reader& in) {
  const auto version = in.integer<std::uint16_t>("version", 0, 65535);
  if (version != session_protocol_version)
    throw make_error(Errc::unsupported,
                     "the agent has version {} of the session protocol, the rendezvous server version {}: run the "
                     "same ddprun on all nodes",
                     version, session_protocol_version);
}

SessionJoin read_join(Reader& in) {
  check_version(in);
  NodeInfo node = read_node(in);
  return {.node = std::move(node), .policy = read_policy(in)};
}

RoundResumed read_resumed(Reader& in) {
  RoundResumed resumed{.generation = in.integer<std::int64_t>("generation", 0, any_long)};
  resumed.electorate.version = read_version(in);
  resumed.confirmed = read_version(in);
  const auto count = in.integer<std::uint32_t>("node count", 0, Limits::nodes);
  for (std::uint32_t i = 0; i < count; ++i) resumed.electorate.nodes.push_back(in.text("node id", Limits::name));
  return resumed;
}

VoteAsked read_vote_asked(Reader& in) {
  check_version(in);
  VoteAsked asked{.run_id = in.text("run id", Limits::name), .request = {}};
  asked.request.candidate = in.text("candidate", Limits::name);
  asked.request.term = in.integer<std::uint64_t>("term", 0, Limits::terms);
  asked.request.newest = read_version(in);
  asked.request.trial = in.flag("trial");
  return asked;
}

ServerElected read_elected(Reader& in) {
  check_version(in);
  ServerElected elected{.run_id = in.text("run id", Limits::name), .server = {}};
  elected.server = read_server_name(in);
  elected.decides = in.flag("decides");
  elected.port = read_port(in, "port");
  return elected;
}

VoteReply read_vote(Reader& in) {
  VoteReply reply{.term = in.integer<std::uint64_t>("term", 0, Limits::terms),
                  .trial = in.flag("trial"),
                  .granted = in.flag("granted"),
                  .voted = in.integer<std::uint64_t>("last vote", 0, Limits::terms),
                  .server = {}};
  if (in.flag("follows a server")) reply.server = read_server_name(in);
  return reply;
}

SessionSeen read_seen(Reader& in) {
  const auto sent = in.integer<std::int64_t>("time sent", 0, any_long);
  return {.sent_us = sent, .known = read_version(in)};
}

SessionServer read_session_server(Reader& in) {
  auto name = read_server_name(in);
  const bool decides = in.flag("decides");
  return {.name = std::move(name), .decides = decides, .sent_us = in.integer<std::int64_t>("time sent", 0, any_long)};
}

ServerMoved read_moved(Reader& in) {
  auto host = in.text("host", Limits::name);
  return {.address = {.host = std::move(host), .port = read_port(in, "port")}};
}

SessionFailure read_failure_report(Reader& in) {
  constexpr auto last = static_cast<std::uint8_t>(Survivors::run_or_end);
  return {.generation = in.integer<std::int64_t>("generation", 0, any_long),
          .sent_us = in.integer<std::int64_t>("time sent", 0, any_long),
          .survivors = static_cast<Survivors>(in.integer<std::uint8_t>("survivors", 0, last)),
          .failures = read_failures(in)};
}

SessionRecovery read_recovery(Reader& in) {
  const auto generation = in.integer<std::int64_t>("generation", 0, any_long);
  return {.generation = generation, .refusal = in.text("refusal", Limits::text)};
}

WorkersRecoverable read_recoverable(Reader& in) {
  const auto generation = in.integer<std::int64_t>("generation", 0, any_long);
  return {.generation = generation, .able = in.flag("able")};
}

WorkersReplaced read_replaced(Reader& in) {
  return {.generation = in.integer<std::int64_t>("generation", 0, any_long),
          .restarts_used = in.integer<std::int32_t>("restarts used", 0, any_int),
          .failures = read_failures(in),
          .group_generation = in.integer<std::uint64_t>("group generation", 0, Limits::generation)};
}

NodeDropped read_dropped(Reader& in) {
  const bool may_return = in.flag("may return");
  return {.text = in.text("text", Limits::text), .may_return = may_return};
}

SessionNode read_node_report(Reader& in) {
  SessionNode frame{.generation = in.integer<std::int64_t>("generation", 0, any_long)};
  auto& report = frame.report;
  report.replaced = in.integer<std::int32_t>("replaced", 0, any_int);
  const auto count = in.integer<std::uint32_t>("worker count", 0, Limits::workers);
  for (std::uint32_t i = 0; i < count; ++i) report.workers.push_back(read_worker(in));
  if (in.flag("tells of its use")) report.usage = read_usage(in);
  return frame;
}

StatusRequest read_status_request(Reader& in) {
  check_version(in);
  return {.run_id = in.text("run id", Limits::name)};
}

StopRequest read_stop_request(Reader& in) {
  check_version(in);
  std::string run_id = in.text("run id", Limits::name);
  return {.run_id = std::move(run_id), .who = in.text("who", Limits::name)};
}

RoundProposed read_proposed(Reader& in) {
  Round round = read_round(in);
  return {.round = std::move(round), .reason = in.text("reason", Limits::text)};
}

RoundChanged read_changed(Reader& in) {
  RoundChanged change{.round = read_round(in), .newcomers = {}, .reason = {}};
  auto& round = change.round;
  round.master_addr = in.text("master address", Limits::name);
  round.master_port = in.integer<std::uint16_t>("master port", 0, std::numeric_limits<std::uint16_t>::max());
  round.group_generation = in.integer<std::uint64_t>("group generation", 1, Limits::generation);
  const auto members = static_cast<std::uint32_t>(round.members.size());
  const auto count = in.integer<std::uint32_t>("newcomer count", 0, members);
  std::uint32_t least = 0;  // in order, so that each change has one encoding
  for (std::uint32_t i = 0; i < count; ++i) {
    change.newcomers.push_back(static_cast<int>(in.integer<std::uint32_t>("newcomer", least, members - 1)));
    least = static_cast<std::uint32_t>(change.newcomers.back()) + 1;
  }
  change.reason = in.text("reason", Limits::text);
  return change;
}

std::uint64_t read_number(Reader& in) {
  return in.integer<std::uint64_t>("number", 0, std::numeric_limits<std::uint64_t>::max());
}

std::optional<RelayMessage> read_relay_message(Kind kind, Reader& in) {
  constexpr auto last_kind = static_cast<std::uint8_t>(RankOutput::Kind::refused);
  switch (kind) {
    case Kind::follow:
      return FollowRank{
          .number = read_number(in), .rank = in.integer<std::int32_t>("rank", 0, any_int), .again = in.flag("again")};
    case Kind::unfollow:
      return UnfollowRank{read_number(in)};
    case Kind::output:
      return RankOutput{.number = read_number(in),
                        .kind = static_cast<RankOutput::Kind>(in.integer<std::uint8_t>("kind of output", 0, last_kind)),
                        .content = in.text("output", RelayLimits::piece)};
    case Kind::taken:
      return OutputTaken{
          .number = read_number(in),
          .bytes = in.integer<std::uint32_t>("bytes taken", 0, std::numeric_limits<std::uint32_t>::max())};
    case Kind::signal:
      return SignalRank{.number = read_number(in),
                        .rank = in.integer<std::int32_t>("rank", 0, any_int),
                        .signal_number = in.integer<std::int32_t>("signal", 1, Limits::signals),
                        .who = in.text("who", Limits::name)};
    case Kind::signalled:
      return SignalAnswer{.number = read_number(in), .problem = in.text("problem", Limits::text)};
    default:
      return std::nullopt;
  }
}

template <class Frame>
Frame read_relayed(std::uint8_t kind, Reader& in) {
  auto message = read_relay_message(static_cast<Kind>(kind), in);
  if (!message) throw make_error(Errc::protocol, "session frame of unknown kind {:#04x}", kind);
  return std::visit([](auto&& one) { return Frame(std::forward<decltype(one)>(one)); }, std::move(*message));
}

NodeFrame read_node_frame(Reader& in) {
  const auto kind = in.integer<std::uint8_t>("kind", 0, 255);
  switch (static_cast<Kind>(kind)) {
    case Kind::join:
      return read_join(in);
    case Kind::beat:
      return SessionBeat{};
    case Kind::seen:
      return read_seen(in);
    case Kind::vote_asked:
      return read_vote_asked(in);
    case Kind::elected:
      return read_elected(in);
    case Kind::ready:
      return SessionReady{.generation = in.integer<std::int64_t>("generation", 0, any_long),
                          .worker_store_port = in.integer<std::uint16_t>("port", 0, 65535)};
    case Kind::success:
      return SessionSuccess{in.integer<std::int64_t>("generation", 0, any_long)};
    case Kind::failure:
      return read_failure_report(in);
    case Kind::recovery:
      return read_recovery(in);
    case Kind::recoverable:
      return read_recoverable(in);
    case Kind::leave:
      return SessionLeave{in.text("reason", Limits::text)};
    case Kind::ask_leave:
      return LeaveRequest{in.text("reason", Limits::text)};
    case Kind::preempted:
      return SessionPreempted{in.integer<std::int64_t>("generation", 0, any_long)};
    case Kind::node:
      return read_node_report(in);
    case Kind::status:
      return read_status_request(in);
    case Kind::stop:
      return read_stop_request(in);
    default:
      return read_relayed<NodeFrame>(kind, in);
  }
}

ServerFrame read_server_frame(Reader& in) {
  const auto kind = in.integer<std::uint8_t>("kind", 0, 255);
  switch (static_cast<Kind>(kind)) {
    case Kind::beat:
      return ServerBeat{in.integer<std::int64_t>("time sent", 0, any_long)};
    case Kind::server:
      return read_session_server(in);
    case Kind::confirmed:
      return ElectorateConfirmed{read_version(in)};
    case Kind::moved:
      return read_moved(in);
    case Kind::vote:
      return read_vote(in);
    case Kind::refused:
      return JoinRefused{in.text("text", Limits::text)};
    case Kind::dropped:
      return read_dropped(in);
    case Kind::waiting:
      return RendezvousWaiting{in.text("text", Limits::text)};
    case Kind::proposed:
      return read_proposed(in);
    case Kind::started:
      return SessionStarted{.generation = in.integer<std::int64_t>("generation", 0, any_long),
                            .master_addr = in.text("master address", Limits::name),
                            .master_port = in.integer<std::uint16_t>("master port", 0, 65535)};
    case Kind::recoverable:
      return read_recoverable(in);
    case Kind::resumed:
      return read_resumed(in);
    case Kind::recovery_asked:
      return RecoveryAsked{in.integer<std::int64_t>("generation", 0, any_long)};
    case Kind::replaced:
      return read_replaced(in);
    case Kind::not_replaced:
      return ReplacementRefused{in.integer<std::int64_t>("generation", 0, any_long)};
    case Kind::may_leave: {
      auto refusal = in.text("refusal", Limits::text);
      return LeaveAnswered{.refusal = std::move(refusal), .round_goes_on = in.flag("round goes on")};
    }
    case Kind::changed:
      return read_changed(in);
    case Kind::ended:
      return JobEnded{read_job_result(in)};
    case Kind::shutdown:
      return SessionShutdown{in.text("reason", Limits::text)};
    case Kind::answer:
      return RequestAnswer{in.text("answer", Limits::answer)};
    default:
      return read_relayed<ServerFrame>(kind, in);
  }
}

}  // namespace

std::string encode(const NodeFrame& frame) {
  return std::visit([](const auto& one) { return encode_one(one); }, frame);
}

std::string encode(const ServerFrame& frame) {
  return std::visit([](const auto& one) { return encode_one(one); }, frame);
}

void set_round_self(std::string& frame, int self) {
  std::string bytes;
  put_le(bytes, static_cast<std::uint32_t>(self));
  frame.replace(self_offset, bytes.size(), bytes);
}

NodeFrame decode_node_frame(std::string_view bytes) {
  Reader in(bytes);
  NodeFrame frame = read_node_frame(in);
  in.finish();
  return frame;
}

ServerFrame decode_server_frame(std::string_view bytes) {
  Reader in(bytes);
  ServerFrame frame = read_server_frame(in);
  in.finish();
  return frame;
}

}  // namespace ddprun
