#include <cstdio>
#include <exception>
#include <filesystem>
#include <unistd.h>

#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/log.h"
#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/agent/job.h"
#include "ddprun/launcher/cli/command_line.h"
#include "ddprun/launcher/cluster/discovery.h"
#include "ddprun/launcher/cluster/meeting.h"
#include "ddprun/launcher/cluster/rendezvous_choice.h"
#include "ddprun/launcher/control/control_command.h"
#include "ddprun/launcher/workers/guardian.h"

using namespace ddprun;

namespace {

std::filesystem::path own_folder() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? std::filesystem::path(".") : self.parent_path();
}

int launch(const std::vector<std::string>& arguments) {
  const auto environment = Environment::capture();
  log::init("ddprun", log::parse_level(environment.get("LOGLEVEL").value_or(""), log::Level::info));

  if (is_control_command(arguments)) return run_control_command(arguments, environment);
  LaunchSettings settings;
  auto line = parse_command_line(arguments, settings);
  if (line.help || line.version) {
    std::fputs(line.help ? help_text(settings).c_str() : "ddprun " DDPRUN_VERSION "\n", stdout);
    return exit_success;
  }
  settings.apply_environment(environment);
  apply_config_file(settings, line.command);
  const auto place = apply_cluster(settings, environment);
  const auto choice = choose_rendezvous(settings, environment);
  auto spec = make_agent_spec(settings, choice, environment, line.command, own_folder());
  // Once a job, not once a node.
  if (place) log::log(place->node_rank == 0 ? log::Level::info : log::Level::debug, "{}", describe(*place, settings));
  if (!choice.notice.empty()) log::info("{}", choice.notice);
  if (limits_omp_threads(environment, spec.node.nproc))
    log::debug("OMP_NUM_THREADS is unset: each of the {} workers gets 1", spec.node.nproc);
  arrange_meeting(spec, choice);

  // Before any thread exists; it outlives this process by a moment.
  const Guardian guardian;
  return run_agent(spec, guardian);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return launch({argv + 1, argv + argc});
  } catch (const Error& e) {
    log::error("{}", e.what());
    return exit_for(e.code());
  } catch (const std::exception& e) {
    log::error("unexpected: {}", e.what());
    return exit_fault;
  }
}
