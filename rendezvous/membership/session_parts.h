#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/frame_codec.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"
#include "rendezvous/round.h"
#include "rendezvous/succession/electorate.h"

// The fields of what session frames are made of: serialize() as frame_codec.h has it.
namespace ddprun {

template <class Codec>
void serialize(Codec& codec, Field<Codec, ElectorateVersion> version) {
  codec.integer("term", version.term, 0, SessionLimits::terms);
  codec.integer("number of a set of nodes", version.number, 0, SessionLimits::terms);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, ServerName> server) {
  codec.text("server", server.node, SessionLimits::name);
  codec.integer("term", server.term, 0, SessionLimits::terms);
  serialize(codec, server.inherited);
}

// The words of a command.
template <class Codec>
void serialize(Codec& codec, Field<Codec, std::vector<std::string>> command) {
  codec.list("words of a command", command, 0, SessionLimits::words,
             [&](auto& word) { codec.text("word of a command", word, SessionLimits::name); });
}

// The names of a node's workers, all or none.
template <class Codec>
void serialize_names(Codec& codec, Field<Codec, std::vector<std::string>> names, int nproc) {
  codec.list("names of workers", names, 0, static_cast<std::size_t>(nproc),
             [&](auto& name) { codec.text("name of a worker", name, SessionLimits::name); });
}

// ---- a node that joins

// nproc: of the node.
template <class Codec>
void serialize(Codec& codec, Field<Codec, std::optional<FormerRound>> round, int nproc) {
  std::int64_t generation = round ? round->generation : -1;
  codec.integer("former generation", generation, -1, SessionLimits::generation);
  if (generation < 0) return;
  if constexpr (Codec::reads)
    round = FormerRound{.generation = generation, .first = {}, .master_addr = {}, .workers = {}};
  codec.integer("former group rank", round->group_rank, 0, SessionLimits::nodes - 1);
  codec.integer("former restarts", round->restarts_used);
  codec.integer("former nodes", round->nodes, 0, SessionLimits::nodes);
  if (round->nodes == 0) return;
  if (Codec::reads && round->group_rank >= round->nodes)
    throw make_error(Errc::protocol, "session frame: former group rank {} of {} nodes", round->group_rank,
                     round->nodes);
  codec.text("former group rank 0", round->first, SessionLimits::name);
  codec.text("former master address", round->master_addr, SessionLimits::name);
  codec.integer("former master port", round->master_port);
  codec.integer("former group generation", round->group_generation, 0, SessionLimits::generation);
  codec.integer("former store port", round->store_port);
  codec.flag("former workers done", round->done);
  serialize_names(codec, round->workers, nproc);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, NodeInfo> node) {
  codec.text("node id", node.id, SessionLimits::name);
  codec.text("host", node.host, SessionLimits::name);
  codec.text("address", node.address, SessionLimits::name);
  codec.integer("nproc", node.nproc, 1, SessionLimits::workers);
  int node_rank = node.node_rank.value_or(-1);
  codec.integer("node rank", node_rank, -1, SessionLimits::nodes - 1);
  serialize(codec, node.command);
  codec.integer("port for elections", node.port);
  codec.flag("serves", node.serves);
  serialize(codec, node.former, node.nproc);
  if constexpr (Codec::reads) {
    if (node_rank >= 0) node.node_rank = node_rank;
    if (node.id.empty()) throw make_error(Errc::protocol, "session frame: the node id is empty");
  }
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, JobPolicy> policy) {
  codec.text("run id", policy.run_id, SessionLimits::name);
  codec.text("program", policy.program, SessionLimits::name);
  codec.integer("min nodes", policy.min_nodes, 1, SessionLimits::nodes);
  codec.integer("max nodes", policy.max_nodes, policy.min_nodes, SessionLimits::nodes);
  codec.flag("fixed ranks", policy.fixed_ranks);
  codec.flag("agent store", policy.agent_store);
  codec.flag("MPI", policy.mpi);
  codec.integer("max restarts", policy.max_restarts);
  codec.integer("spares", policy.spares, 0, SessionLimits::nodes);
  codec.duration("last call", policy.last_call, 0, SessionLimits::milliseconds);
  codec.duration("join timeout", policy.join_timeout, 0, SessionLimits::milliseconds);
  codec.duration("keep-alive interval", policy.keep_alive_interval, 1, SessionLimits::keep_alive_milliseconds);
  codec.integer("keep-alive attempts", policy.keep_alive_max_attempt, 1, SessionLimits::keep_alive_attempts);
  if (Codec::reads && policy.fixed_ranks && policy.min_nodes != policy.max_nodes)
    throw make_error(Errc::protocol, "session frame: fixed ranks with {} to {} nodes", policy.min_nodes,
                     policy.max_nodes);
}

// ---- failures and results

template <class Codec>
void serialize(Codec& codec, Field<Codec, WorkerFailure> failure) {
  codec.integer("rank", failure.rank);
  codec.integer("local rank", failure.local_rank);
  codec.integer("group rank", failure.group_rank);
  codec.text("host", failure.host, SessionLimits::name);
  codec.integer("pid", failure.pid);
  codec.integer("exit code", failure.exit_code, 0, 255);
  codec.integer("signal", failure.signal_number, 0, 127);
  codec.integer("time", failure.time_us);
  codec.text("message", failure.message, SessionLimits::text);
  codec.text("last lines", failure.last_lines, SessionLimits::text);
  codec.text("error file", failure.error_file, SessionLimits::text);
  codec.text("cause", failure.cause, SessionLimits::name);
  codec.text("label", failure.label, SessionLimits::name);
  codec.flag("consequence", failure.consequence);
  codec.flag("usage error", failure.usage_error);
}

// The first ones suffice, and a report of all workers of a very large node would not fit a frame.
template <class Codec>
void serialize(Codec& codec, Field<Codec, std::vector<WorkerFailure>> failures) {
  codec.list("failure count", failures, 0, SessionLimits::failures, [&](auto& failure) { serialize(codec, failure); });
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, JobResult> result) {
  codec.flag("success", result.success);
  codec.integer("exit code", result.exit_code, 0, 255);
  codec.text("reason", result.reason, SessionLimits::text);
  serialize(codec, result.failures);
}

// ---- reports of a node

template <class Codec>
void serialize(Codec& codec, Field<Codec, TrainingReport> training) {
  codec.integer("step", training.step);
  codec.integer("steps", training.total_steps);
  codec.integer("epoch", training.epoch);
  codec.real("loss", training.loss);
  codec.real("samples a second", training.samples_per_s);
  codec.real("seconds left", training.seconds_left);
  codec.real("lateness", training.lateness);
  codec.real("seconds of a step", training.step_seconds);
  codec.real("part of the data", training.data);
  codec.real("part of the computation", training.compute);
  codec.real("part of the communication", training.communication);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, WorkerReport> worker) {
  codec.integer("local rank", worker.local_rank, 0, SessionLimits::workers - 1);
  codec.integer("pid", worker.pid);
  codec.enumeration("state", worker.state, WorkerReport::State::ended);
  codec.integer("exit code", worker.exit_code, 0, 255);
  codec.integer("signal", worker.signal_number, 0, 127);
  codec.optional("tells of training", worker.training, [&](auto& training) { serialize(codec, training); });
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, NodeUsage> usage) {
  codec.integer("processors", usage.processors);
  codec.real("busy processors", usage.busy);
  codec.real("bytes received", usage.received);
  codec.real("bytes sent", usage.sent);
  codec.integer("memory", usage.memory);
  codec.integer("memory used", usage.memory_used);
  codec.integer("shared memory", usage.shared_memory);
  codec.integer("shared memory used", usage.shared_memory_used);
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, NodeReport> report) {
  codec.integer("replaced", report.replaced);
  codec.list("worker count", report.workers, 0, SessionLimits::workers,
             [&](auto& worker) { serialize(codec, worker); });
  codec.optional("tells of its use", report.usage, [&](auto& usage) { serialize(codec, usage); });
  codec.optional("tells of its workers' wish", report.wants_standby, [&](auto& wants) { codec.flag("wish", wants); });
  codec.optional("tells of its processes that stand by", report.stands_by,
                 [&](auto& ready) { codec.flag("stands by", ready); });
  codec.list("count of workers with the state", report.got_state, 0, SessionLimits::workers,
             [&](auto& name) { codec.text("worker", name, SessionLimits::name); });
}

// ---- rounds

template <class Codec>
void serialize(Codec& codec, Field<Codec, RoundMember> member) {
  codec.text("node id", member.node_id, SessionLimits::name);
  codec.text("host", member.host, SessionLimits::name);
  codec.text("address", member.address, SessionLimits::name);
  codec.integer("port for elections", member.port);
  codec.integer("nproc", member.nproc, 1, SessionLimits::workers);
}

// Sets the ranks, which follow from the order of the members.
inline void number_members(Round& round) {
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    round.members[i].group_rank = static_cast<int>(i);
    round.members[i].first_rank = round.world_size;
    round.world_size += round.members[i].nproc;
  }
}

template <class Codec>
void serialize(Codec& codec, Field<Codec, CommandDifference> difference, int nodes) {
  serialize(codec, difference.first);
  codec.integer("node with another command", difference.other, 0, nodes - 1);
  serialize(codec, difference.others);
  codec.integer("nodes with other commands", difference.count, 1, nodes);
}

// Begins with Round::self. Ranks are not sent, and the address of the workers' store is not known when it is proposed.
template <class Codec>
void serialize(Codec& codec, Field<Codec, Round> round) {
  codec.integer("self", round.self, 0, SessionLimits::nodes - 1);
  codec.integer("generation", round.generation);
  codec.integer("restarts used", round.restarts_used);
  serialize(codec, round.electorate);
  serialize(codec, round.confirmed);
  const auto least_members = static_cast<std::size_t>(round.self) + 1;
  codec.list("member count", round.members, least_members, SessionLimits::nodes,
             [&](auto& member) { serialize(codec, member); });
  if constexpr (Codec::reads) number_members(round);
  const int nodes = static_cast<int>(round.members.size());
  codec.optional("commands differ", round.commands, [&](auto& difference) { serialize(codec, difference, nodes); });
}

}  // namespace ddprun
