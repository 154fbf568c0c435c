#include <exception>
#include <filesystem>
#include <functional>
#include <string_view>
#include <unistd.h>

#include "ddprun/common/descriptors.h"
#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/log.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/common/version.h"
#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/agent/job.h"
#include "ddprun/launcher/agent/place.h"
#include "ddprun/launcher/agent/preview.h"
#include "ddprun/launcher/cli/command_line.h"
#include "ddprun/launcher/cli/pages.h"
#include "ddprun/launcher/cluster/discovery.h"
#include "ddprun/launcher/cluster/meeting.h"
#include "ddprun/launcher/cluster/rendezvous_choice.h"
#include "ddprun/launcher/control/control_command.h"
#include "ddprun/launcher/hosts/fleet.h"
#include "ddprun/launcher/hosts/remote_agent.h"
#include "ddprun/launcher/workers/guardian.h"

using namespace ddprun;

namespace {

std::filesystem::path own_program() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? std::filesystem::path("./ddprun") : self;
}

void init_log(const Environment& environment) {
  log::init("ddprun", log::parse_level(environment.get("LOGLEVEL").value_or(""), log::Level::info));
}

// remote: null, or on whose behalf this one runs that a ddprun --hosts has started.
int launch(const std::vector<std::string>& arguments, const Environment& environment, RemoteAgent* remote) {
  init_log(environment);
  if (is_control_command(arguments)) return run_control_command(arguments, environment);
  LaunchSettings settings;
  auto line = parse_command_line(arguments, settings);
  if (line.page != CommandLine::Page::none) {
    write_standard_output(page_text(line.page, settings));
    return exit_success;
  }
  settings.apply_environment(environment);
  apply_config_file(settings, line.command);
  if (!remote && names_hosts(settings)) {
    if (settings.options().dry_run)
      throw make_error(Errc::usage, "--dry_run looks at one node: run it there, without --hosts and --hostfile");
    auto fleet =
        make_fleet_spec(settings, environment, arguments, own_program().string(), std::string(project_version()));
    fleet.descriptors = raise_descriptor_limit().before;  // some pipes a host
    const Guardian guardian;
    return run_fleet(fleet, guardian);
  }
  if (remote) remote->apply_options(settings);
  const auto place = remote ? std::nullopt : apply_cluster(settings, environment);
  const auto choice = choose_rendezvous(settings, environment);
  auto spec = make_agent_spec(settings, choice, environment, line.command, own_program().parent_path());
  // Once a job, not once a node.
  if (place) log::log(place->node_rank == 0 ? log::Level::info : log::Level::debug, "{}", describe(*place, settings));
  for (const auto& text : idle_options(settings, spec)) log::info("{}", text);
  place_on_machine(spec, settings);
  if (settings.options().dry_run) {
    write_standard_output(preview(spec, choice));
    return exit_success;
  }
  // A pipe or two a worker, a connection each where they meet.
  spec.group.descriptors = raise_descriptor_limit().before;
  if (!choice.notice.empty()) log::info("{}", choice.notice);
  arrange_meeting(spec, choice);
  if (remote) remote->report_to_starter(spec);

  // Before any thread exists; it outlives this process by a moment.
  const Guardian guardian;
  if (remote) remote->obey();
  return run_agent(spec, guardian);
}

int exit_code_of(const std::function<int()>& program) {
  try {
    return program();
  } catch (const Error& e) {
    log::error("{}", e.what());
    return exit_for(e.code());
  } catch (const std::exception& e) {
    log::error("unexpected: {}", e.what());
    return exit_fault;
  }
}

int serve(const std::string& token) {
  const auto environment = Environment::capture();
  init_log(environment);
  RemoteAgent remote(token, std::string(project_version()), environment);
  const int code = exit_code_of([&] {
    remote.receive_order();
    return launch(remote.order().arguments, remote.environment(), &remote);
  });
  remote.say_exit(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view for_another = "--remote_agent=";
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return exit_code_of([&] {
    if (arguments.size() == 1 && arguments[0].starts_with(for_another))
      return serve(arguments[0].substr(for_another.size()));
    return launch(arguments, Environment::capture(), nullptr);
  });
}
