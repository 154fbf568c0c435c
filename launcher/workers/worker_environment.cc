#include "launcher/workers/worker_environment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "rendezvous/progress/training_memory.h"
#include "rendezvous/recovery/recovery_keys.h"
#include "rendezvous/recovery/standby_socket.h"
#include "rendezvous/recovery/store_notice.h"
#include "rendezvous/store/local_socket.h"
#include "rendezvous/trust/token_descriptor.h"

namespace ddprun {
namespace {

// Variables by which an MPI, and ddprun-worker, would take another starter for theirs.
constexpr const char* variables_of_other_starters[] = {
    "PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};

Environment shared_environment(const Environment& agent, const WorkerEnvSpec& spec, const Round& round) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  const auto number = [](auto value) { return std::to_string(value); };
  const auto world_size = number(round.world_size);

  Environment env = agent;
  env.set("WORLD_SIZE", world_size);
  env.set("LOCAL_WORLD_SIZE", number(self.nproc));
  env.set("GROUP_RANK", number(self.group_rank));
  env.set("GROUP_WORLD_SIZE", number(round.members.size()));
  env.set("ROLE_NAME", spec.role);
  env.set("ROLE_WORLD_SIZE", world_size);
  env.set("MASTER_ADDR", round.master_addr);
  env.set("MASTER_PORT", number(round.master_port));
  env.set("TORCHELASTIC_RESTART_COUNT", number(round.generation));
  env.set("TORCHELASTIC_MAX_RESTARTS", number(spec.max_restarts));
  env.set("TORCHELASTIC_RUN_ID", spec.run_id);
  env.set("TORCHELASTIC_USE_AGENT_STORE", spec.agent_store ? "True" : "False");
  env.set("TORCHELASTIC_SIGNALS_TO_HANDLE", spec.signals_to_handle);
  env.unset(recovery_variable);
  env.unset(standby_variable);
  if (!spec.timer_file.empty()) env.set("TORCHELASTIC_TIMER_FILE", spec.timer_file);
  env.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", agent.get("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1"));
  if (spec.token_descriptor >= 0)
    env.set(token_descriptor_variable, number(spec.token_descriptor));
  else
    env.unset(token_descriptor_variable);
  if (!spec.store_socket.empty())
    env.set(std::string(rendezvous::store_socket_variable),
            rendezvous::store_socket_value(spec.store_socket, round.master_port));
  else
    env.unset(rendezvous::store_socket_variable);
  if (!spec.store_notice.empty())
    env.set(std::string(store_notice_variable), spec.store_notice);
  else
    env.unset(store_notice_variable);
  if (spec.pmi) {
    for (const auto* name : variables_of_other_starters) env.unset(name);
    env.set("PMI_SIZE", world_size);
    env.set("MPI_LOCALNRANKS", number(self.nproc));
  }
  return env;
}

// The variables whose values differ between workers; every worker has all of them.
std::vector<std::pair<std::string, std::string>> own_variables(const Environment& agent, const WorkerEnvSpec& spec,
                                                               const Round& round, int local_rank,
                                                               const std::string& error_file, int pmi_descriptor) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  const auto rank = std::to_string(self.first_rank + local_rank);
  std::vector<std::pair<std::string, std::string>> own{
      {"RANK", rank},
      {"LOCAL_RANK", std::to_string(spec.virtual_local_rank ? 0 : local_rank)},
      {"ROLE_RANK", rank},  // a job has one role
      {"TORCHELASTIC_ERROR_FILE", error_file}};
  if (spec.recovery) own.emplace_back(recovery_variable, std::to_string(*spec.recovery));
  if (!spec.training_memory.empty())
    own.emplace_back(training_record_variable, fmt::format("{}:{}", spec.training_memory, local_rank));
  if (spec.pmi) {
    own.emplace_back("PMI_RANK", rank);
    own.emplace_back("PMI_FD", std::to_string(pmi_descriptor));
    own.emplace_back("MPI_LOCALRANKID", std::to_string(local_rank));
  }
  if (spec.virtual_local_rank) own.emplace_back("CUDA_VISIBLE_DEVICES", own_device(agent, local_rank));
  if (!spec.omp_threads.empty())
    own.emplace_back("OMP_NUM_THREADS", std::to_string(spec.omp_threads.at(static_cast<std::size_t>(local_rank))));
  return own;
}

}  // namespace

std::string own_device(const Environment& agent, int local_rank) {
  const auto list = agent.get("CUDA_VISIBLE_DEVICES");
  if (!list) return std::to_string(local_rank);
  std::string_view rest = *list;
  for (int skipped = 0; skipped < local_rank && !rest.empty(); ++skipped) {
    const auto comma = rest.find(',');
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  const auto device = rest.substr(0, rest.find(','));
  if (device.empty())
    throw make_error(Errc::usage, "--virtual_local_rank: CUDA_VISIBLE_DEVICES = {} has no device for local rank {}",
                     *list, local_rank);
  return std::string(device);
}

Environment worker_environment(const Environment& agent, const WorkerEnvSpec& spec, const Round& round, int local_rank,
                               const std::string& error_file, int pmi_descriptor) {
  Environment env = shared_environment(agent, spec, round);
  for (auto& [name, value] : own_variables(agent, spec, round, local_rank, error_file, pmi_descriptor))
    env.set(name, std::move(value));
  return env;
}

WorkerEnvironments::WorkerEnvironments(const Environment& agent, const WorkerEnvSpec& spec, const Round& round)
    : agent_(agent), spec_(spec), round_(round) {
  Environment shared = shared_environment(agent, spec, round);
  const auto own = own_variables(agent, spec, round, 0, "", -1);
  for (const auto& [name, value] : own) shared.unset(name);
  entries_ = shared.entries();
  shared_ = entries_.size();
  entries_.reserve(shared_ + own.size());
}

std::span<const std::string> WorkerEnvironments::of(int local_rank, const std::string& error_file, int pmi_descriptor) {
  entries_.resize(shared_);
  for (const auto& [name, value] : own_variables(agent_, spec_, round_, local_rank, error_file, pmi_descriptor))
    entries_.push_back(name + "=" + value);
  return entries_;
}

std::span<const std::string> WorkerEnvironments::of_standby(const std::string& error_file, int descriptor) {
  // Numbers of the worker, its generation and its error file that are longer, and addresses that a spare does not know.
  constexpr std::size_t longer_values = 320;
  const int last = round_.members.at(static_cast<std::size_t>(round_.self)).nproc - 1;
  std::size_t room = longer_values;
  for (const auto& [name, value] : own_variables(agent_, spec_, round_, last, error_file, -1))
    room += name.size() + value.size() + 2;
  entries_.resize(shared_);
  if (!spec_.omp_threads.empty()) entries_.push_back(fmt::format("OMP_NUM_THREADS={}", spec_.omp_threads.front()));
  entries_.push_back("TORCHELASTIC_ERROR_FILE=" + error_file);
  for (std::size_t i = shared_; i < entries_.size(); ++i) room -= std::min(room, entries_[i].size() + 1);
  auto& reserved = entries_.emplace_back(fmt::format("{}={}", standby_variable, descriptor));
  if (reserved.size() < room) reserved.resize(room, ' ');
  return entries_;
}

}  // namespace ddprun
