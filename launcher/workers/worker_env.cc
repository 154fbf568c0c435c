#include "ddprun/launcher/workers/worker_env.h"

#include <string_view>

#include "ddprun/common/error.h"

namespace ddprun {

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
                               const std::string& error_file) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  const auto number = [](auto value) { return std::to_string(value); };
  const auto rank = number(self.first_rank + local_rank);
  const auto world_size = number(round.world_size);

  Environment env = agent;
  env.set("RANK", rank);
  env.set("WORLD_SIZE", world_size);
  env.set("LOCAL_RANK", number(spec.virtual_local_rank ? 0 : local_rank));
  if (spec.virtual_local_rank) env.set("CUDA_VISIBLE_DEVICES", own_device(agent, local_rank));
  env.set("LOCAL_WORLD_SIZE", number(self.nproc));
  env.set("GROUP_RANK", number(self.group_rank));
  env.set("GROUP_WORLD_SIZE", number(round.members.size()));
  env.set("ROLE_NAME", spec.role);
  env.set("ROLE_RANK", rank);  // one role a job
  env.set("ROLE_WORLD_SIZE", world_size);
  env.set("MASTER_ADDR", round.master_addr);
  env.set("MASTER_PORT", number(round.master_port));
  env.set("TORCHELASTIC_RESTART_COUNT", number(round.generation));
  env.set("TORCHELASTIC_MAX_RESTARTS", number(spec.max_restarts));
  env.set("TORCHELASTIC_RUN_ID", spec.run_id);
  env.set("TORCHELASTIC_USE_AGENT_STORE", spec.agent_store ? "True" : "False");
  env.set("TORCHELASTIC_ERROR_FILE", error_file);
  env.set("TORCHELASTIC_SIGNALS_TO_HANDLE", spec.signals_to_handle);
  if (!spec.timer_file.empty()) env.set("TORCHELASTIC_TIMER_FILE", spec.timer_file);
  env.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", agent.get("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1"));
  if (!spec.omp_threads.empty())
    env.set("OMP_NUM_THREADS", number(spec.omp_threads.at(static_cast<std::size_t>(local_rank))));
  return env;
}

}  // namespace ddprun
