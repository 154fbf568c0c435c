#include "common/error.h"
#include "launcher/cluster/discovery.h"
#include "launcher/cluster/variables.h"

namespace ddprun {
namespace {

// Every pod has its own network namespace, so the port is free.
constexpr std::uint16_t port = 29400;

constexpr const char* index_name = "JOB_COMPLETION_INDEX";  // set by Kubernetes in the pods of an indexed Job
// The variables that the manifest sets (scripts/k8s):
constexpr const char* job_name = "DDPRUN_K8S_JOB";
constexpr const char* service_name = "DDPRUN_K8S_SERVICE";
constexpr const char* nodes_name = "DDPRUN_K8S_COMPLETIONS";

ClusterInfo in_indexed_job(const Environment& environment) {
  for (const auto* name : {index_name, job_name, service_name, nodes_name})
    if (text_of(environment, name).empty())
      throw make_error(
          Errc::usage,
          "this pod has some of the variables of an indexed Job, but not {}; scripts/k8s has a manifest that sets "
          "all of them",
          name);
  const auto job = text_of(environment, job_name);
  return {.job = fmt::format("Kubernetes job {}", job),
          .nodes = number_of(environment, nodes_name, 1),
          .node_rank = node_rank_of(environment, index_name, nodes_name),
          .host = fmt::format("{}-0.{}", job, text_of(environment, service_name)),
          .port = port,
          .id = job};
}

}  // namespace

std::optional<ClusterInfo> discover_kubernetes(const Environment& environment) {
  // An indexed Job whose pods are independent of one another sets neither.
  if (text_of(environment, service_name).empty() && text_of(environment, nodes_name).empty()) return std::nullopt;
  return info_or_error([&] { return in_indexed_job(environment); });
}

}  // namespace ddprun
