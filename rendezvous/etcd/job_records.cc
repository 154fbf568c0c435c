#include "rendezvous/etcd/job_records.h"

#include <array>
#include <chrono>
#include <concepts>
#include <type_traits>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "common/error.h"

namespace ddprun {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

// ---- the fields of each type, for both directions

template <class Visit>
void fields(Visit& at, FormerRound& v) {
  at("generation", v.generation), at("group_rank", v.group_rank), at("restarts_used", v.restarts_used);
}
template <class Visit>
void fields(Visit& at, NodeInfo& v) {
  at("id", v.id), at("host", v.host), at("address", v.address), at("nproc", v.nproc), at("node_rank", v.node_rank);
  at("command", v.command), at("former", v.former);
}
template <class Visit>
void fields(Visit& at, JobPolicy& v) {
  at("run_id", v.run_id), at("program", v.program), at("min_nodes", v.min_nodes), at("max_nodes", v.max_nodes);
  at("fixed_ranks", v.fixed_ranks), at("agent_store", v.agent_store), at("mpi", v.mpi),
      at("max_restarts", v.max_restarts), at("last_call_ms", v.last_call);
  at("join_timeout_ms", v.join_timeout), at("keep_alive_interval_ms", v.keep_alive_interval);
  at("keep_alive_max_attempt", v.keep_alive_max_attempt);
}
template <class Visit>
void fields(Visit& at, SessionAddresses& v) {
  at("peer", v.peer), at("local", v.local);
}
template <class Visit>
void fields(Visit& at, WorkerFailure& v) {
  at("rank", v.rank), at("local_rank", v.local_rank), at("group_rank", v.group_rank), at("host", v.host);
  at("pid", v.pid), at("exit_code", v.exit_code), at("signal", v.signal_number), at("time_us", v.time_us);
  at("message", v.message), at("last_lines", v.last_lines), at("error_file", v.error_file);
  at("cause", v.cause), at("label", v.label), at("consequence", v.consequence), at("usage_error", v.usage_error);
}
template <class Visit>
void fields(Visit& at, RoundMember& v) {
  at("node_id", v.node_id), at("host", v.host), at("address", v.address), at("group_rank", v.group_rank);
  at("nproc", v.nproc), at("first_rank", v.first_rank);
}
template <class Visit>
void fields(Visit& at, CommandDifference& v) {
  at("first", v.first), at("other", v.other), at("others", v.others), at("count", v.count);
}
template <class Visit>
void fields(Visit& at, Round& v) {
  at("generation", v.generation), at("restarts_used", v.restarts_used), at("members", v.members);
  at("world_size", v.world_size), at("commands", v.commands);
  at("master_addr", v.master_addr), at("master_port", v.master_port);
}
template <class Visit>
void fields(Visit& at, JobResult& v) {
  at("success", v.success), at("exit_code", v.exit_code), at("reason", v.reason), at("failures", v.failures);
}
template <class Visit>
void fields(Visit& at, NodeRecord& v) {
  at("version", v.version), at("session", v.session);
  if (v.version != job_records_version) return;
  at("info", v.info), at("policy", v.policy);
  at("addresses", v.addresses), at("report", v.report), at("generation", v.generation);
  at("worker_store_port", v.worker_store_port), at("failures", v.failures), at("sent_us", v.sent_us);
  at("liveness_check", v.liveness_check), at("left", v.left), at("stop", v.stop);
}
template <class Visit>
void fields(Visit& at, JobAnnouncement::Rejected& v) {
  at("lost", v.lost), at("text", v.text);
}
template <class Visit>
void fields(Visit& at, JobAnnouncement& v) {
  at("phase", v.phase), at("round", v.round), at("sessions", v.sessions), at("reason", v.reason);
  at("waiting", v.waiting);
  at("liveness_check", v.liveness_check), at("rejected", v.rejected), at("result", v.result);
  at("recipients", v.recipients);
}
template <class Visit>
void fields(Visit& at, MembershipSnapshot::Node& v) {
  at("info", v.info), at("addresses", v.addresses), at("arrival", v.arrival), at("rank", v.rank);
  at("joined_ago_ms", v.joined_ago), at("rank_of", v.rank_of);
  at("member", v.member), at("ready", v.ready), at("succeeded", v.succeeded), at("failed", v.failed);
}
template <class Visit>
void fields(Visit& at, MembershipSnapshot& v) {
  at("policy", v.policy), at("policy_host", v.policy_host), at("phase", v.phase), at("nodes", v.nodes);
  at("former_ranks", v.former_ranks), at("arrivals", v.arrivals), at("round", v.round);
  at("next_generation", v.next_generation), at("worker_store_port", v.worker_store_port);
  at("restarts_used", v.restarts_used), at("preempted", v.preempted), at("form_left_ms", v.form_left),
      at("last_call_left_ms", v.last_call_left);
  at("ready_left_ms", v.ready_left), at("judgement_left_ms", v.judgement_left), at("failures", v.failures);
  at("last_change", v.last_change);
}
template <class Visit>
void fields(Visit& at, JobState& v) {
  at("writer", v.writer), at("sequence", v.sequence), at("sessions", v.sessions), at("membership", v.membership);
}

// The names in the order of the enumerators.
constexpr std::array report_names = {"none", "ready", "success", "preempted", "failure"};
constexpr std::array phase_names = {"forming", "proposed", "running", "ended"};
const auto& names_of(NodeRecord::Report) {
  return report_names;
}
const auto& names_of(JobAnnouncement::Phase) {
  return phase_names;
}
const auto& names_of(MembershipSnapshot::Phase) {
  return phase_names;
}

// ---- values to JSON

struct Writer;
template <class T>
json::value write(T& value);

template <class T>
json::value write_all(std::vector<T>& values) {
  json::array array;
  for (auto& value : values) array.push_back(write(value));
  return array;
}
template <class T>
json::value write_all(std::map<std::string, T>& values) {
  json::object object;
  for (auto& [key, value] : values) object[key] = write(value);
  return object;
}
template <class T>
json::value write_all(std::optional<T>& value) {
  return value ? write(*value) : json::value(nullptr);
}

struct Writer {
  json::object object;
  template <class T>
  void operator()(const char* name, T& value) {
    object[name] = write(value);
  }
};

template <class T>
json::value write(T& value) {
  if constexpr (std::is_enum_v<T>) {
    return json::value(names_of(value).at(static_cast<std::size_t>(value)));
  } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
    return json::value(value);
  } else if constexpr (std::same_as<T, milliseconds>) {
    return json::value(value.count());
  } else if constexpr (requires { write_all(value); }) {
    return write_all(value);
  } else {
    Writer writer;
    fields(writer, value);
    return std::move(writer.object);
  }
}

// ---- JSON to values

template <class T>
bool read(const json::value& in, T& value);

template <class T>
bool read_all(const json::value& in, std::vector<T>& values) {
  const auto* array = in.if_array();
  if (!array) return false;
  for (const auto& one : *array)
    if (!read(one, values.emplace_back())) return false;
  return true;
}
template <class T>
bool read_all(const json::value& in, std::map<std::string, T>& values) {
  const auto* object = in.if_object();
  if (!object) return false;
  for (const auto& [key, one] : *object)
    if (!read(one, values[std::string(key)])) return false;
  return true;
}
template <class T>
bool read_all(const json::value& in, std::optional<T>& value) {
  return in.is_null() || read(in, value.emplace());
}

struct Reader {
  const json::object& object;
  template <class T>
  void operator()(const char* name, T& value) {
    const auto* in = object.if_contains(name);
    if (!in || !read(*in, value)) throw make_error(Errc::protocol, "'{}' is missing or not as expected", name);
  }
};

template <class T>
bool read_name(const json::value& in, T& value) {
  const auto* text = in.if_string();
  const auto& names = names_of(value);
  for (std::size_t i = 0; text && i < names.size(); ++i) {
    if (*text != names[i]) continue;
    value = static_cast<T>(i);
    return true;
  }
  return false;
}

template <class T>
bool read_number(const json::value& in, T& value) {
  boost::system::error_code error;
  if (in.is_number()) value = in.to_number<T>(error);
  return in.is_number() && !error;
}

template <class T>
bool read(const json::value& in, T& value) {
  if constexpr (std::is_enum_v<T>) {
    return read_name(in, value);
  } else if constexpr (std::same_as<T, bool>) {
    if (in.is_bool()) value = in.get_bool();
    return in.is_bool();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return read_number(in, value);
  } else if constexpr (std::same_as<T, std::string>) {
    if (in.is_string()) value = std::string(in.get_string());
    return in.is_string();
  } else if constexpr (std::same_as<T, milliseconds>) {
    std::int64_t count = 0;
    const bool ok = read_number(in, count);
    value = milliseconds(count);
    return ok;
  } else if constexpr (requires { read_all(in, value); }) {
    return read_all(in, value);
  } else {
    const auto* object = in.if_object();
    if (!object) return false;
    Reader reader{*object};
    fields(reader, value);
    return true;
  }
}

template <class T>
T parse_record(std::string_view key, std::string_view text) {
  boost::system::error_code error;
  // The last lines of a worker's output may contain any bytes.
  const json::value in = json::parse(text, error, {}, {.allow_invalid_utf8 = true});
  T value;
  try {
    if (error || !read(in, value)) throw make_error(Errc::protocol, "it is not a JSON object");
  } catch (const Error& problem) {
    throw make_error(Errc::protocol, "etcd's key '{}' does not hold what this version of ddprun writes there: {}", key,
                     problem.what());
  }
  return value;
}

template <class T>
std::string record_text(T value) {
  return json::serialize(write(value));
}

}  // namespace

std::string to_json(const NodeRecord& record) {
  return record_text(record);
}
std::string to_json(const JobAnnouncement& announcement) {
  return record_text(announcement);
}
std::string to_json(const JobState& state) {
  return record_text(state);
}

NodeRecord parse_node_record(std::string_view key, std::string_view text) {
  return parse_record<NodeRecord>(key, text);
}
JobAnnouncement parse_job_announcement(std::string_view key, std::string_view text) {
  return parse_record<JobAnnouncement>(key, text);
}
JobState parse_job_state(std::string_view key, std::string_view text) {
  return parse_record<JobState>(key, text);
}

}  // namespace ddprun
