#include "launcher/cluster/job_trust.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include "common/deadline.h"
#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/trust/socket_owner.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Backend = RendezvousChoice::Backend;

constexpr std::chrono::seconds slurm_patience{20};
// Set by the manifests of scripts/k8s: the file of a Secret that is mounted in each pod.
constexpr const char* k8s_token_file = "DDPRUN_K8S_TOKEN_FILE";
constexpr std::chrono::milliseconds first_pause{20}, longest_pause{500};

// Returns why the servers of this agent cannot determine who owns a client's socket; empty if they can.
std::string kernel_problem() {
  try {
    SocketOwners();
    return {};
  } catch (const Error& e) {
    return fmt::format("the kernel does not say whose sockets are ({})", e.what());
  }
}

// Settings without effect are refused as mistakes where they were meant to protect something.
void check_settings(const RendezvousChoice& choice) {
  if (choice.token_file.empty()) return;
  if (!choice.authenticate) throw make_error(Errc::usage, "--rdzv_conf: token_file and auth=off contradict each other");
  if (choice.backend == Backend::static_)
    throw make_error(Errc::usage,
                     "--rdzv_conf: token_file: --rdzv_backend=static speaks torchrun's protocol, which has no "
                     "authentication; use --rdzv_backend=c10d");
}

// Returns why a job with these settings cannot be authenticated; empty if it can.
std::string obstacle(const RendezvousChoice& choice) {
  if (!choice.authenticate) return "--rdzv_conf has auth=off";
  if (choice.backend == Backend::static_)
    return "--rdzv_backend=static speaks torchrun's protocol, which has no authentication";
  return kernel_problem();
}

// Returns the file of a Slurm job step in the user's home, which its nodes share. A step that Slurm has restarted has
// another file, and so has one of another cluster with the same home, whose job may have the same number.
std::optional<fs::path> slurm_file(const ClusterInfo& cluster, const Environment& environment) {
  const auto home = environment.get("HOME").value_or("");
  if (home.empty()) return std::nullopt;
  const auto name = environment.get("SLURM_CLUSTER_NAME").value_or("");
  const auto restarts = environment.get("SLURM_RESTART_COUNT").value_or("0");
  return fs::path(home) / ".ddprun" /
         fmt::format("{}{}{}.{}.token", name, name.empty() ? "" : ".", cluster.id, restarts);
}

// A step's id is "slurm-JOB.STEP"; a process outside of steps shares the id of the whole job with others.
bool is_slurm_step(const ClusterInfo& cluster) {
  return cluster.id.starts_with("slurm-") && cluster.id.find('.') != std::string::npos;
}

// The agent of node rank 0 makes the token. An existing file is that of an agent of the same step that was killed.
Secret make_slurm_token(const fs::path& file, std::shared_ptr<TokenFile>& made) {
  ::mkdir(file.parent_path().c_str(), S_IRWXU);  // the next call reports errors
  if (auto left = find_token_file(file)) {
    made = std::make_shared<TokenFile>(file);
    return std::move(*left);
  }
  auto token = Secret::random();
  made = std::make_shared<TokenFile>(file, token);
  return token;
}

std::optional<Secret> await_slurm_token(const fs::path& file) {
  const auto deadline = Deadline::in(slurm_patience);
  for (auto pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    if (auto token = find_token_file(file)) return token;
    if (deadline.expired()) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

struct FoundToken {
  std::optional<Secret> token;
  std::string problem;  // why there is no token
};

FoundToken slurm_token(const ClusterInfo& cluster, const Environment& environment, std::shared_ptr<TokenFile>& made) {
  const auto file = slurm_file(cluster, environment);
  if (!file) return {{}, "HOME is not set, where the Slurm job's token file would be"};
  try {
    if (cluster.node_rank == 0) return {make_slurm_token(*file, made), {}};
  } catch (const Error& e) {
    return {{}, e.what()};
  }
  auto token = await_slurm_token(*file);
  if (token) return {std::move(token), {}};
  return {{},
          fmt::format("node rank 0 has made no {} that this node can see; is the home folder shared?", file->string())};
}

FoundToken find_token(const RendezvousChoice& choice, const Environment& environment, const TokenSources& sources,
                      std::shared_ptr<TokenFile>& made) {
  if (!choice.token_file.empty()) return {read_token_file(choice.token_file), {}};
  if (sources.from_starter) return {Secret::from_hex(sources.from_starter->view()), {}};
  if (const auto file = environment.get(k8s_token_file).value_or(""); !file.empty()) return {read_token_file(file), {}};
  if (sources.cluster && is_slurm_step(*sources.cluster)) return slurm_token(*sources.cluster, environment, made);
  return {{}, "its agents have no token; --rdzv_conf=token_file=FILE gives them one"};
}

// All agents and workers are on this host, so the kernel knows every client.
bool is_of_this_host(const RendezvousChoice& choice) {
  const bool loopback = choice.host == "localhost" || is_loopback_address(choice.host);
  return choice.standalone || (choice.backend != Backend::etcd && loopback);
}

// Returns the trust of a job that is not authenticated.
JobTrust without(bool required, const RendezvousChoice& choice, const std::string& why) {
  if (required) throw make_error(Errc::usage, "--require_auth: the job would not be authenticated: {}", why);
  if (choice.standalone) return {.notice = fmt::format("any process of this host can use the job's store: {}", why)};
  return {.notice = fmt::format("any process that reaches the ports of this job can use them: {}", why)};
}

// Agents on one host know nothing of each other's processes without a token. At the endpoint any process of the user is
// admitted: other agents, and tools such as ddprun status.
JobTrust admitting(std::shared_ptr<const Credentials> credentials, const RendezvousChoice& choice) {
  const bool agents_know = credentials || choice.policy.max_nodes == 1;
  Admission admission{.credentials = credentials};
  JobTrust trust{.credentials = std::move(credentials), .admission = std::make_shared<Admission>(admission)};
  if (choice.clients_of_job && agents_know) admission.clients = Admission::Clients::of_job;
  trust.workers = std::make_shared<Admission>(admission);
  return trust;
}

}  // namespace

JobTrust choose_trust(const RendezvousChoice& choice, bool required, const Environment& environment,
                      const TokenSources& sources) {
  check_settings(choice);
  const bool here = is_of_this_host(choice) && choice.token_file.empty();
  if (here && !required && choice.authenticate && kernel_problem().empty()) return admitting(nullptr, choice);
  if (const auto why = obstacle(choice); !why.empty()) return without(required, choice, why);
  if (here) return admitting(nullptr, choice);
  if (choice.backend == Backend::etcd && required)
    return without(required, choice, "the connections to etcd have no authentication");
  std::shared_ptr<TokenFile> made;
  auto found = find_token(choice, environment, sources, made);
  if (!found.token) return without(required, choice, found.problem);
  const auto transport = choice.encrypt ? Credentials::Transport::tls : Credentials::Transport::clear;
  auto trust =
      admitting(std::make_shared<Credentials>(std::move(*found.token), choice.policy.run_id, transport), choice);
  trust.file = std::move(made);
  return trust;
}

}  // namespace ddprun
