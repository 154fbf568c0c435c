#include "ddprun/launcher/agent/job.h"

#include <random>
#include <unistd.h>

#include "ddprun/common/config/config_file.h"
#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"

namespace ddprun {
namespace {

constexpr std::string_view launch_prefix = "--launch.";

// Unique among the agents of a job, also of several on one machine and of one that was started again.
std::string make_node_id(const std::string& host) {
  std::random_device source;
  return fmt::format("{}-{}-{:08x}", host, ::getpid(), source());
}

}  // namespace

void apply_config_file(LaunchSettings& settings, std::vector<std::string>& command) {
  if (command.empty() || settings.options().no_python || settings.options().module ||
      !command.front().ends_with(".cfg"))
    return;
  for (const auto& entry : read_config(command.front()))
    if (entry.key.starts_with("launch."))
      settings.settings().assign(entry.key, entry.value, {Origin::file, entry.where});
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (!command[i].starts_with(launch_prefix)) {
      rest.push_back(command[i]);
      continue;
    }
    std::vector<std::string> override{command[i]};
    if (command[i].find('=') == std::string::npos && i + 1 < command.size()) override.push_back(command[++i]);
    for (const auto& entry : parse_overrides(override))
      settings.settings().assign(entry.key, entry.value, {Origin::command_line, entry.where});
  }
  command = std::move(rest);
}

AgentSpec make_agent_spec(const LaunchSettings& settings, const RendezvousChoice& choice,
                          const Environment& environment, const std::vector<std::string>& command,
                          const std::filesystem::path& own_folder) {
  const auto& o = settings.options();
  AgentSpec spec;
  const auto host = local_host_name();
  spec.node = {.id = make_node_id(host),
               .host = host,
               .address = o.local_addr,
               .nproc = resolve_nproc(o.nproc_per_node, environment),
               .node_rank = choice.node_rank};
  spec.policy = choice.policy;
  spec.group.environment = environment;
  spec.group.exported = {.role = o.role, .run_id = choice.policy.run_id, .max_restarts = o.max_restarts};
  spec.group.output = {.role = o.role,
                       .nproc = spec.node.nproc,
                       .redirects = StreamSpec::parse(o.redirects, "redirects"),
                       .tee = StreamSpec::parse(o.tee, "tee")};
  spec.group.host = host;
  spec.group.command =
      resolve_command(command, {.no_python = o.no_python, .module = o.module}, own_folder, environment);
  // By name alone: nodes may keep the same script in different places.
  spec.policy.program = std::filesystem::path(spec.group.command.title).filename().string();
  spec.log_dir = o.log_dir;
  spec.keep_logs = !o.log_dir.empty() || spec.group.output.redirects.any() || spec.group.output.tee.any();
  spec.grace = std::chrono::seconds(o.shutdown_timeout);
  return spec;
}

}  // namespace ddprun
