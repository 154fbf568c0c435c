#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/process_limits.h"
#include "common/standard_output.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/job.h"
#include "launcher/agent/preview.h"
#include "launcher/attach/attach_command.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/pages.h"
#include "launcher/cluster/discovery.h"
#include "launcher/cluster/job_trust.h"
#include "launcher/cluster/rendezvous_choice.h"
#include "launcher/control/control_command.h"
#include "launcher/dashboard/view_commands.h"
#include "launcher/doctor/doctor.h"
#include "launcher/remote_launcher.h"
#include "launcher/workers/guardian.h"
#include "rendezvous/backend.h"

using namespace ddprun;

namespace {

using RemoteLaunchers = std::vector<std::unique_ptr<RemoteLauncher>>;

// The optional ways to start agents on other hosts, one row each.
RemoteLaunchers remote_launchers() {
  RemoteLaunchers all;
  all.push_back(make_hosts_launcher());
  return all;
}

std::filesystem::path own_program() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? std::filesystem::path("./ddprun") : self;
}

void init_log(const Environment& environment) {
  log::init("ddprun", log::parse_level(environment.get("LOGLEVEL").value_or(""), log::Level::info));
}

// Runs this node's agent. See LaunchFunction for connection.
int launch_agent(LaunchSettings& settings, const Environment& environment, const std::vector<std::string>& command,
                 StarterConnection* connection) {
  if (connection) connection->apply_options(settings);
  const auto cluster = connection ? std::nullopt : apply_cluster(settings, environment);
  const auto choice = choose_rendezvous(settings, environment);
  auto spec = make_agent_spec(settings, choice, environment, command, own_program().parent_path());
  if (cluster)  // once per job, not once per node
    log::log(cluster->node_rank == 0 ? log::Level::info : log::Level::debug, "{}", describe(*cluster, settings));
  for (const auto& text : options_without_effect(settings, spec)) log::info("{}", text);
  place_on_machine(spec, settings);
  if (settings.options().dry_run) {
    write_standard_output(preview(spec, choice));
    return exit_success;
  }
  // The agent needs some pipes for each worker, and a connection for each one if it serves their store.
  spec.group.descriptors = raise_descriptor_limit().before;
  if (!choice.notice.empty()) log::info("{}", choice.notice);
  spec.trust = choose_trust(choice, settings.options().require_auth, environment,
                            {.from_starter = connection ? connection->token() : nullptr, .cluster = cluster});
  if (!spec.trust.notice.empty()) log::info("{}", spec.trust.notice);
  spec.group.credentials = spec.trust.credentials;
  auto options = backend_options(choice);
  options.credentials = spec.trust.credentials;
  options.admission = spec.trust.admission;
  spec.open_rendezvous = [options](boost::asio::io_context& loop) { return open_rendezvous(loop, options); };
  if (connection) connection->attach(spec);

  Guardian guardian;  // forked before any thread exists
  if (connection) connection->forward_signals();
  return run_agent(spec, guardian);
}

int launch(const std::vector<std::string>& arguments, const Environment& environment, StarterConnection* connection) {
  init_log(environment);
  if (const auto code = doctor::run_doctor(arguments, environment, own_program().string())) return *code;
  if (dashboard::is_view_command(arguments)) return dashboard::run_view_command(arguments, environment);
  if (is_attach_command(arguments)) return run_attach_command(arguments, environment);
  if (is_control_command(arguments)) return run_control_command(arguments, environment);
  const auto launchers = remote_launchers();
  LaunchSettings settings;
  for (const auto& launcher : launchers) launcher->add_options(settings);
  auto line = parse_command_line(arguments, settings);
  if (line.page != CommandLine::Page::none) {
    write_standard_output(page_text(line.page, settings));
    return exit_success;
  }
  settings.apply_environment(environment);
  apply_config_file(settings, line.command);
  for (const auto& launcher : launchers)
    if (!connection && launcher->requested())
      return launcher->run(settings, environment, arguments, own_program().string());
  return launch_agent(settings, environment, line.command, connection);
}

int run(const std::vector<std::string>& arguments) {
  const auto environment = Environment::capture();
  init_log(environment);
  for (const auto& launcher : remote_launchers())
    if (const auto code = launcher->serve(arguments, environment, launch)) return *code;
  return launch(arguments, environment, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  if (arguments.size() == 2 && arguments[0] == Guardian::run_option) run_guardian(argv[2]);
  try {
    return run(arguments);
  } catch (const Error& e) {
    log::error("{}", e.what());
    return exit_for(e.code());
  } catch (const std::exception& e) {
    log::error("unexpected: {}", exception_text(e));
    return exit_fault;
  }
}
