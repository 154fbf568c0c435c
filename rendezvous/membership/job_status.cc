#include "rendezvous/membership/job_status.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <boost/system/system_error.hpp>

#include "common/error.h"
#include "common/printable.h"

namespace ddprun {
namespace {

namespace json = boost::json;
using State = WorkerReport::State;

constexpr std::array<const char*, 3> state_names = {"running", "stopped", "ended"};

JobStatus::Age age(const json::value& value) {
  return JobStatus::Age(value.to_number<std::int64_t>());
}

State state_named(std::string_view name) {
  for (std::size_t i = 0; i < state_names.size(); ++i)
    if (name == state_names[i]) return static_cast<State>(i);
  throw make_error(Errc::protocol, "a status has a worker in the unknown state '{}'", name);
}

// JSON has no NaN.
json::value figure(double value) {
  return std::isfinite(value) ? json::value(value) : json::value(nullptr);
}
double figure_in(const json::object& object, const char* key) {
  const auto& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.to_number<double>();
}

json::object to_object(const TrainingReport& training) {
  return {{"step", training.step},
          {"total_steps", training.total_steps},
          {"epoch", training.epoch},
          {"loss", figure(training.loss)},
          {"samples_per_s", figure(training.samples_per_s)},
          {"seconds_left", figure(training.seconds_left)},
          {"lateness_s", figure(training.lateness)},
          {"step_s", figure(training.step_seconds)},
          {"data", figure(training.data)},
          {"compute", figure(training.compute)},
          {"communication", figure(training.communication)}};
}

TrainingReport training_from(const json::object& object) {
  return {.step = object.at("step").to_number<std::int64_t>(),
          .total_steps = object.at("total_steps").to_number<std::int64_t>(),
          .epoch = object.at("epoch").to_number<std::int64_t>(),
          .loss = figure_in(object, "loss"),
          .samples_per_s = figure_in(object, "samples_per_s"),
          .seconds_left = figure_in(object, "seconds_left"),
          .lateness = figure_in(object, "lateness_s"),
          .step_seconds = figure_in(object, "step_s"),
          .data = figure_in(object, "data"),
          .compute = figure_in(object, "compute"),
          .communication = figure_in(object, "communication")};
}

json::object to_object(const JobStatus::Worker& worker, int first_rank) {
  json::object object{{"rank", first_rank + worker.now.local_rank},
                      {"local_rank", worker.now.local_rank},
                      {"pid", worker.now.pid},
                      {"state", state_names.at(static_cast<std::size_t>(worker.now.state))},
                      {"since_ms", worker.since.count()}};
  if (worker.now.state == State::ended) object["exit_code"] = worker.now.exit_code;
  if (worker.now.signal_number != 0) object["signal"] = worker.now.signal_number;
  if (worker.now.training) object["training"] = to_object(*worker.now.training);
  return object;
}

json::object to_object(const NodeUsage& usage) {
  return {{"processors", usage.processors},
          {"busy", figure(usage.busy)},
          {"memory", usage.memory},
          {"memory_used", usage.memory_used},
          {"received_per_s", figure(usage.received)},
          {"sent_per_s", figure(usage.sent)},
          {"shared_memory", usage.shared_memory},
          {"shared_memory_used", usage.shared_memory_used}};
}

NodeUsage usage_from(const json::object& object) {
  return {.processors = object.at("processors").to_number<int>(),
          .busy = figure_in(object, "busy"),
          .memory = object.at("memory").to_number<std::int64_t>(),
          .memory_used = object.at("memory_used").to_number<std::int64_t>(),
          .received = figure_in(object, "received_per_s"),
          .sent = figure_in(object, "sent_per_s"),
          .shared_memory = object.at("shared_memory").to_number<std::int64_t>(),
          .shared_memory_used = object.at("shared_memory_used").to_number<std::int64_t>()};
}

json::object to_object(const JobStatus::Node& node) {
  json::array workers;
  for (const auto& worker : node.workers) workers.push_back(to_object(worker, node.first_rank));
  json::object object{{"host", node.host},
                      {"address", node.address},
                      {"state", node.state},
                      {"group_rank", node.group_rank},
                      {"first_rank", node.first_rank},
                      {"nproc", node.nproc},
                      {"since_ms", node.since.count()},
                      {"heard_ms", node.heard.count()},
                      {"workers", std::move(workers)}};
  if (node.usage) object["usage"] = to_object(*node.usage);
  if (node.warm) object["warm"] = true;
  return object;
}

json::object to_object(const JobStatus& job) {
  json::array nodes;
  for (const auto& node : job.nodes) nodes.push_back(to_object(node));
  json::object object{{"run_id", job.run_id},
                      {"program", job.program},
                      {"phase", job.phase},
                      {"waiting_for", job.waiting_for},
                      {"generation", job.generation},
                      {"restarts_used", job.restarts_used},
                      {"max_restarts", job.max_restarts},
                      {"min_nodes", job.min_nodes},
                      {"max_nodes", job.max_nodes},
                      {"world_size", job.world_size},
                      {"store", job.store},
                      {"node_count", job.node_count},
                      {"since_ms", job.since.count()},
                      {"nodes", std::move(nodes)}};
  if (const auto training = training_of(job)) object["training"] = to_object(*training);
  return object;
}

std::string text(const json::object& object, const char* key) {
  return std::string(object.at(key).as_string());
}
template <class T>
T number(const json::object& object, const char* key) {
  return object.at(key).to_number<T>();
}

JobStatus::Worker worker_from(const json::object& object) {
  JobStatus::Worker worker{.now = {.local_rank = number<int>(object, "local_rank"),
                                   .pid = number<std::int64_t>(object, "pid"),
                                   .state = state_named(text(object, "state"))},
                           .since = age(object.at("since_ms"))};
  if (const auto* code = object.if_contains("exit_code")) worker.now.exit_code = code->to_number<int>();
  if (const auto* signal = object.if_contains("signal")) worker.now.signal_number = signal->to_number<int>();
  if (const auto* training = object.if_contains("training")) worker.now.training = training_from(training->as_object());
  return worker;
}

JobStatus::Node node_from(const json::object& object) {
  JobStatus::Node node{.host = text(object, "host"),
                       .address = text(object, "address"),
                       .state = text(object, "state"),
                       .group_rank = number<int>(object, "group_rank"),
                       .first_rank = number<int>(object, "first_rank"),
                       .nproc = number<int>(object, "nproc"),
                       .since = age(object.at("since_ms")),
                       .heard = age(object.at("heard_ms"))};
  node.warm = object.contains("warm");
  for (const auto& worker : object.at("workers").as_array()) node.workers.push_back(worker_from(worker.as_object()));
  if (const auto* usage = object.if_contains("usage")) node.usage = usage_from(usage->as_object());
  return node;
}

JobStatus job_from(const json::object& object) {
  JobStatus job{.run_id = text(object, "run_id"),
                .program = text(object, "program"),
                .phase = text(object, "phase"),
                .waiting_for = text(object, "waiting_for"),
                .generation = number<std::int64_t>(object, "generation"),
                .restarts_used = number<int>(object, "restarts_used"),
                .max_restarts = number<int>(object, "max_restarts"),
                .min_nodes = number<int>(object, "min_nodes"),
                .max_nodes = number<int>(object, "max_nodes"),
                .world_size = number<int>(object, "world_size"),
                .store = text(object, "store"),
                .node_count = number<int>(object, "node_count"),
                .since = age(object.at("since_ms"))};
  for (const auto& node : object.at("nodes").as_array()) job.nodes.push_back(node_from(node.as_object()));
  return job;
}

}  // namespace

std::optional<TrainingReport> training_of(const JobStatus& job) {
  std::optional<TrainingReport> latest;
  for (const auto& node : job.nodes)
    for (const auto& worker : node.workers)
      if (worker.now.training && (!latest || worker.now.training->step > latest->step)) latest = worker.now.training;
  return latest;
}

std::string to_json(const std::vector<JobStatus>& jobs) {
  json::array array;
  for (const auto& job : jobs) array.push_back(to_object(job));
  return valid_json(json::serialize(json::object{{"jobs", std::move(array)}}));
}

std::optional<std::string> to_json_within(std::vector<JobStatus> jobs, std::size_t limit) {
  auto text = to_json(jobs);
  if (text.size() <= limit) return text;
  for (auto& job : jobs) job.nodes.clear();
  text = to_json(jobs);
  return text.size() <= limit ? std::optional(std::move(text)) : std::nullopt;
}

std::vector<JobStatus> parse_job_statuses(std::string_view text) {
  try {
    const auto document = json::parse(json::string_view(text.data(), text.size()));
    std::vector<JobStatus> jobs;
    for (const auto& job : document.as_object().at("jobs").as_array()) jobs.push_back(job_from(job.as_object()));
    return jobs;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    // what() of Boost.JSON's exceptions names its source file; their error code's message does not.
    const auto* json_error = dynamic_cast<const boost::system::system_error*>(&e);
    throw make_error(Errc::protocol, "not a job status: {}", json_error ? json_error->code().message() : e.what());
  }
}

}  // namespace ddprun
