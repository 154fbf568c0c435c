#include <functional>
#include <string_view>

#include "common/descriptors.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/version.h"
#include "launcher/hosts/hosts_job.h"
#include "launcher/hosts/remote_agent.h"
#include "launcher/remote_launcher.h"
#include "launcher/workers/guardian.h"

namespace ddprun {
namespace {

class HostsLauncher : public RemoteLauncher {
 public:
  void add_options(LaunchSettings& settings) override { options_.add_to(settings); }
  bool requested() const override { return options_.names_hosts(); }

  int run(const LaunchSettings& settings, const Environment& environment, const std::vector<std::string>& arguments,
          const std::string& program) override {
    if (settings.options().dry_run)
      throw make_error(Errc::usage, "--dry_run looks at one node: run it there, without --hosts and --hostfile");
    auto spec =
        make_hosts_job_spec(settings, options_, environment, arguments, program, std::string(project_version()));
    spec.descriptors = raise_descriptor_limit().before;  // each host needs some pipes
    Guardian guardian;
    return run_hosts_job(spec, guardian);
  }

  std::optional<int> serve(const std::vector<std::string>& arguments, const Environment& environment,
                           const LaunchFunction& launch) override {
    if (arguments.size() != 1 || !arguments[0].starts_with(remote_agent_option)) return std::nullopt;
    RemoteAgent agent(arguments[0].substr(remote_agent_option.size()), std::string(project_version()), environment);
    const int code = run_agent_of(agent, launch);
    agent.report_exit(code);
    return code;
  }

 private:
  // Errors become the exit code here, because it has to be reported.
  static int run_agent_of(RemoteAgent& agent, const LaunchFunction& launch) {
    try {
      agent.receive_request();
      return launch(agent.request().arguments, agent.environment(), &agent);
    } catch (const Error& e) {
      log::error("{}", e.what());
      return exit_for(e.code());
    } catch (const std::exception& e) {
      log::error("unexpected: {}", e.what());
      return exit_fault;
    }
  }

  HostsOptions options_;
};

}  // namespace

std::unique_ptr<RemoteLauncher> make_hosts_launcher() {
  return std::make_unique<HostsLauncher>();
}

}  // namespace ddprun
