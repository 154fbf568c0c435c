#include <charconv>

#include "ddprun/common/error.h"
#include "ddprun/launcher/cluster/discovery.h"

namespace ddprun {
namespace {

// Every pod has its own network, so the port is free.
constexpr std::uint16_t port = 29400;

constexpr const char* index_name = "JOB_COMPLETION_INDEX";  // set by Kubernetes in the pods of an indexed Job
// Set by the manifest (scripts/k8s):
constexpr const char* job_name = "DDPRUN_K8S_JOB";
constexpr const char* service_name = "DDPRUN_K8S_SERVICE";
constexpr const char* nodes_name = "DDPRUN_K8S_COMPLETIONS";

std::string text(const Environment& environment, const char* name) {
  return environment.get(name).value_or("");
}

int number(const Environment& environment, const char* name, int min) {
  const auto digits = text(environment, name);
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size() || value < min)
    throw make_error(Errc::usage, "{} = {}: expected a whole number at least {}", name, digits, min);
  return value;
}

ClusterInfo in_indexed_job(const Environment& environment) {
  for (const auto* name : {index_name, job_name, service_name, nodes_name})
    if (text(environment, name).empty())
      throw make_error(
          Errc::usage,
          "this pod has some of the variables of an indexed Job, but not {}; scripts/k8s has a manifest that sets "
          "all of them",
          name);
  const auto job = text(environment, job_name);
  ClusterInfo info{.job = fmt::format("Kubernetes job {}", job),
                   .nodes = number(environment, nodes_name, 1),
                   .node_rank = number(environment, index_name, 0),
                   .host = fmt::format("{}-0.{}", job, text(environment, service_name)),
                   .port = port,
                   .id = job};
  if (info.node_rank >= info.nodes)
    throw make_error(Errc::usage, "{} = {}: expected less than {} = {}", index_name, info.node_rank, nodes_name,
                     info.nodes);
  return info;
}

}  // namespace

std::optional<ClusterInfo> discover_kubernetes(const Environment& environment) {
  // An indexed Job whose pods are independent of one another sets neither.
  if (text(environment, service_name).empty() && text(environment, nodes_name).empty()) return std::nullopt;
  try {
    return in_indexed_job(environment);
  } catch (const Error& e) {
    ClusterInfo info;
    info.error = e.what();
    return info;
  }
}

}  // namespace ddprun
