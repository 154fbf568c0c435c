#include <filesystem>

#include "common/bounded_file.h"
#include "common/error.h"
#include "common/random.h"
#include "launcher/hosts/hosts_job.h"
#include "launcher/hosts/ssh_command.h"

namespace ddprun {
namespace {

constexpr std::size_t largest_hostfile = std::size_t{16} << 20;

std::string read_hostfile(const std::string& path) {
  try {
    return read_named_file(path, largest_hostfile);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "--hostfile: {}", e.what());
  }
}

void refuse_options_of_one_node(const LaunchSettings& settings) {
  for (const auto* name : {"standalone", "node_rank", "local_addr"})
    if (settings.is_set(name) && !(std::string_view(name) == "standalone" && !settings.options().standalone))
      throw make_error(Errc::usage, "--{} is for one node: it cannot be combined with --hosts", name);
  const auto& stdin_ranks = settings.options().stdin_ranks;
  if (settings.is_set("stdin") && stdin_ranks != "none")
    throw make_error(Errc::usage, "--stdin = {}: workers that --hosts starts have no standard input", stdin_ranks);
}

bool endpoint_given(const LaunchSettings& settings) {
  return settings.is_set("rdzv_endpoint") || settings.is_set("master_addr") || settings.is_set("master_port");
}

std::string working_directory() {
  std::error_code failure;
  const auto path = std::filesystem::current_path(failure);
  if (failure) throw make_error(Errc::io, "cannot determine the working directory: {}", failure.message());
  return path.string();
}

std::string given_endpoint(const LaunchSettings& settings) {
  const auto& o = settings.options();
  if (settings.is_set("rdzv_endpoint")) return o.rdzv_endpoint;
  return endpoint_given(settings) ? fmt::format("{}:{}", o.master_addr, o.master_port) : "";
}

}  // namespace

std::vector<HostEntry> named_hosts(const HostsOptions& options) {
  if (!options.hosts.empty() && !options.hostfile.empty())
    throw make_error(Errc::usage, "--hosts and --hostfile exclude each other");
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  return parse_hostfile(read_hostfile(options.hostfile), options.hostfile);
}

void HostsOptions::add_to(LaunchSettings& settings) {
  settings.add("hosts", hosts,
               {.help = "hosts to start the job on by ssh, HOST[:WORKERS][,HOST...], one agent on each "
                        "(docs/clusters.md)"});
  settings.add("hostfile", hostfile,
               {.help = "a file with one host per line, as 'node1 slots=4' or node1:4, instead of --hosts"});
  settings.add("ssh", ssh, {.help = "the command that connects to a host, as in --ssh='ssh -p 2222'"});
  settings.add("env", env, {.help = "additional variables to pass to the hosts, NAME[=VALUE][,NAME...]"});
}

HostsJobSpec make_hosts_job_spec(const LaunchSettings& settings, const HostsOptions& options,
                                 const Environment& environment, const std::vector<std::string>& arguments,
                                 const std::string& program, const std::string& version) {
  const auto& o = settings.options();
  refuse_options_of_one_node(settings);
  HostsJobSpec spec{
      .hosts = named_hosts(options), .ssh = options.ssh, .program = program, .connection_id = random_hex(16)};
  const auto count = static_cast<int>(spec.hosts.size());
  spec.environment = environment;
  if (o.spares >= count)
    throw make_error(Errc::usage, "--spares = {}: expected less than the number of hosts, {}", o.spares, count);
  spec.nnodes = settings.is_set("nnodes") ? o.nnodes : std::to_string(count - o.spares);
  const auto nodes = parse_node_count(spec.nnodes);
  if (nodes.min > count)
    throw make_error(Errc::usage, "--nnodes = {}: expected at most the number of hosts, {}", spec.nnodes, count);
  spec.backend = settings.is_set("rdzv_backend") ? o.rdzv_backend : "c10d";
  spec.rdzv_conf = o.rdzv_conf;
  spec.policy = {.version = version,
                 .endpoint = given_endpoint(settings),
                 .min_nodes = nodes.min,
                 .grace = std::chrono::seconds(o.shutdown_timeout)};
  if (spec.policy.endpoint.empty() && spec.backend != "c10d")
    throw make_error(Errc::usage, "--hosts with --rdzv_backend={} needs an --rdzv_endpoint", spec.backend);
  spec.request = {.directory = working_directory(),
                  .environment = environment_for_hosts(environment, options.env),
                  .arguments = arguments};
  return spec;
}

LaunchRequest request_for(const HostsJobSpec& spec, const SendRequest& action) {
  auto request = spec.request;
  const auto& host = spec.hosts.at(action.host);
  auto conf = spec.rdzv_conf;
  if (action.serves || action.served_elsewhere)
    conf += fmt::format("{}is_host={}", conf.empty() ? "" : ",", action.serves);
  request.options = {{"nnodes", spec.nnodes},
                     {"node_rank", std::to_string(action.host)},
                     {"rdzv_backend", spec.backend},
                     {"rdzv_endpoint", action.endpoint}};
  if (!conf.empty()) request.options.emplace_back("rdzv_conf", conf);
  if (host.slots) request.options.emplace_back("nproc_per_node", std::to_string(*host.slots));
  return request;
}

}  // namespace ddprun
