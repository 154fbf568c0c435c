#include "launcher/agent/job.h"

#include <algorithm>
#include <unistd.h>

#include "common/config/config_file.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/loopback.h"
#include "common/random.h"
#include "launcher/cli/lists.h"
#include "launcher/dashboard/token_file.h"
#include "launcher/placement/affinity.h"
#include "rendezvous/membership/node_commands.h"

namespace ddprun {
namespace {

constexpr std::string_view launch_prefix = "--launch.";

// Unique among the agents of a job, including several on one machine and restarted ones.
std::string make_node_id(const std::string& host) {
  return fmt::format("{}-{}-{}", host, ::getpid(), random_hex(4));
}

// The workers of a job of one node connect over loopback, whatever address its session comes from.
std::string address_for_others(const LaunchOptions& o, const JobPolicy& policy) {
  return o.local_addr.empty() && policy.max_nodes == 1 ? loopback_address() : o.local_addr;
}

OutputSpec output_spec(const LaunchOptions& o, int nproc, const std::string& host) {
  OutputSpec spec{.role = o.role,
                  .host = host,
                  .nproc = nproc,
                  .redirects = StreamSpec::parse(o.redirects, "redirects"),
                  .tee = StreamSpec::parse(o.tee, "tee"),
                  .out_filters = parse_texts(o.duplicate_stdout_filters),
                  .err_filters = parse_texts(o.duplicate_stderr_filters)};
  if (auto ranks = parse_local_ranks(o.local_ranks_filter, "local_ranks_filter"); !ranks.empty())
    spec.shown = std::move(ranks);
  if (!o.log_line_prefix_template.empty()) spec.prefix = o.log_line_prefix_template;
  return spec;
}

// Checks what the ranks of several nodes need to be one MPI job.
void check_nodes_can_run_mpi(const LaunchOptions& o, const RendezvousChoice& choice) {
  if (o.no_agent_store)
    throw make_error(Errc::usage,
                     "--mpi = {}: the nodes exchange addresses through the workers' store, which no agent serves with "
                     "--no_agent_store",
                     o.mpi);
  if (choice.backend == RendezvousChoice::Backend::static_)
    throw make_error(Errc::usage,
                     "--mpi = {}: several nodes need --rdzv_backend=c10d or etcd, by which they agree on a name of the "
                     "MPI job; static does not",
                     o.mpi);
}

// A worker that opened a FIFO after ddprun has read it would wait for ever.
void check_can_be_read_again(const std::filesystem::path& config) {
  std::error_code ignored;
  const auto status = std::filesystem::status(config, ignored);
  if (std::filesystem::is_other(status))
    throw make_error(Errc::usage, "{}: ddprun and every worker read this file: it must not be a FIFO or a device",
                     config.string());
}

// Checks that the job can go on without a node that leaves.
void check_faults(const FaultPlan& faults, const RendezvousChoice& choice) {
  const auto& policy = choice.policy;
  if (!faults.has(FaultKind::leave)) return;
  if (policy.min_nodes == policy.max_nodes)
    throw make_error(Errc::usage,
                     "--chaos: leave needs --nnodes=MIN:MAX with MIN less than MAX, so that the job goes on without "
                     "this node; --nnodes={} is a fixed number",
                     policy.max_nodes);
  if (choice.backend != RendezvousChoice::Backend::c10d)
    throw make_error(Errc::usage,
                     "--chaos: leave needs --rdzv_backend=c10d, whose server knows when enough nodes remain");
}

// Checks that workers of the job can go on when a spare takes the place of a lost node.
void check_spares(const LaunchOptions& o, const RendezvousChoice& choice, const RestartRules& rules) {
  if (choice.policy.spares == 0 || rules.single_workers) return;
  const std::string given = choice.backend != RendezvousChoice::Backend::c10d
                                ? "with --rdzv_backend=" + name_of(choice.backend)
                            : o.restart == "all" ? "with --restart=all"
                            : o.no_agent_store   ? "with --no_agent_store"
                                                 : "with --mpi";
  throw make_error(Errc::usage,
                   "--spares = {}: {} all workers start again when a node is lost, so no process can stand by for one",
                   choice.policy.spares, given);
}

RestartRules restart_rules(const LaunchOptions& o, const RendezvousChoice& choice) {
  const bool possible = choice.backend == RendezvousChoice::Backend::c10d && !o.no_agent_store && o.mpi == "none";
  if (o.restart == "failed" && !possible)
    throw make_error(Errc::usage,
                     "--restart = failed: single workers are replaced with --rdzv_backend=c10d, without "
                     "--no_agent_store and without --mpi");
  if (o.restart == "failed" && o.max_restarts == 0)
    throw make_error(Errc::usage, "--restart = failed: it needs --max_restarts");
  return {.scope = o.restart == "all"      ? RestartScope::all
                   : o.restart == "failed" ? RestartScope::failed
                                           : RestartScope::automatic,
          .single_workers = possible && o.restart != "all" && choice.policy.may_be_replaced(),
          .asks_server = choice.policy.max_nodes > 1,
          .max_restarts = o.max_restarts};
}

// Behind the train.cfg an option of ddprun would be taken for a key of it.
void refuse_option(const std::string& argument, const std::string& file, const LaunchSettings& settings) {
  if (!argument.starts_with("--")) return;
  auto name = argument.substr(2, argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  if (settings.settings().knows("launch." + name))
    throw make_error(Errc::usage, "--{} is an option of ddprun: put it before {}, or write --launch.{} here", name,
                     file, name);
}

}  // namespace

void apply_config_file(LaunchSettings& settings, std::vector<std::string>& command) {
  if (command.empty() || settings.options().no_python || settings.options().module ||
      !command.front().ends_with(".cfg"))
    return;
  check_can_be_read_again(command.front());
  for (const auto& entry : read_config(command.front()))
    if (entry.key.starts_with("launch."))
      settings.settings().assign(entry.key, entry.value, {Origin::file, entry.where});
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (!command[i].starts_with(launch_prefix)) {
      refuse_option(command[i], command.front(), settings);
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
               .address = address_for_others(o, choice.policy),
               .nproc = resolve_nproc(o.nproc_per_node, environment),
               .node_rank = choice.node_rank,
               .command = command_to_compare(command)};
  spec.policy = choice.policy;
  spec.policy.agent_store = !o.no_agent_store;
  spec.policy.mpi = o.mpi != "none";
  if (o.mpi != "none" && spec.policy.max_nodes > 1) check_nodes_can_run_mpi(o, choice);
  spec.group.environment = environment;
  spec.group.exported = {.role = o.role,
                         .run_id = choice.policy.run_id,
                         .max_restarts = o.max_restarts,
                         .signals_to_handle = o.signals_to_handle,
                         .virtual_local_rank = o.virtual_local_rank,
                         .pmi = o.mpi == "pmi1",
                         .agent_store = !o.no_agent_store};
  spec.restarts = restart_rules(o, choice);
  check_spares(o, choice, spec.restarts);
  if (spec.restarts.single_workers && (spec.node.nproc > 1 || choice.policy.max_nodes > 1))
    spec.group.exported.recovery = 0;
  if (o.virtual_local_rank) own_device(environment, spec.node.nproc - 1);  // throws now, not when workers start
  spec.group.output = output_spec(o, spec.node.nproc, host);
  spec.group.host = host;
  spec.group.command = resolve_command(
      command, {.no_python = o.no_python, .module = o.module, .for_preview = o.dry_run}, own_folder, environment);
  // The policy has only the name, since nodes may have the same script in different folders.
  spec.policy.program = std::filesystem::path(spec.group.command.title).filename().string();
  spec.log_dir = o.log_dir;
  spec.keep_logs = !o.log_dir.empty() || spec.group.output.redirects.any() || spec.group.output.tee.any();
  spec.health_check = {.command = o.health_check, .host = host, .timeout = choice.policy.join_timeout};
  if (!o.chaos.empty()) {
    spec.faults = parse_faults(o.chaos);
    check_faults(*spec.faults, choice);
  }
  spec.group.input = parse_worker_input(o.stdin_ranks);
  spec.grace = std::chrono::seconds(o.shutdown_timeout);
  spec.group.uninterruptible_timeout =
      std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(o.uninterruptible_timeout));
  spec.watchdog = environment.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1";
  spec.watchdog_pipe = environment.get("TORCHELASTIC_TIMER_FILE").value_or("");
  spec.events = parse_event_target(o.event_log_handler);
  spec.backend = name_of(choice.backend);
  if (!o.dashboard.empty()) spec.dashboard = dashboard::parse_dashboard_address(o.dashboard);
  if (spec.dashboard && !o.dashboard_token_file.empty() && !o.dry_run)
    spec.dashboard->token = dashboard::token_in(o.dashboard_token_file);
  if (o.loss_curve != "auto") spec.loss_curve = o.loss_curve == "always";
  spec.end_signals = parse_signals(o.signals_to_handle, "signals_to_handle");
  return spec;
}

void place_on_machine(AgentSpec& spec, const LaunchSettings& settings) {
  const auto& o = settings.options();
  auto& placement = spec.group.placement;
  placement = place_workers(
      {.workers = spec.node.nproc, .binding = parse_binding(o.bind, o.numa_binding), .for_preview = o.dry_run},
      spec.group.environment, current_affinity());
  if (placement.sets_threads)
    for (const auto& worker : placement.workers) spec.group.exported.omp_threads.push_back(worker.threads);
  if (o.dry_run) return;  // the preview shows it
  for (const auto& notice : placement.notices) log::info("{}", notice);
  if (placement.sets_threads)
    log::debug("OMP_NUM_THREADS is unset: {} workers on {} cores get {} each", spec.node.nproc, placement.cores,
               placement.workers.back().threads);
}

std::vector<std::string> options_without_effect(const LaunchSettings& settings, const AgentSpec& spec) {
  std::vector<std::string> lines;
  if (settings.is_set("start_method"))
    lines.emplace_back(
        "--start_method has no effect: it applies to Python functions, and a worker of ddprun is a program");
  const auto& output = spec.group.output;
  if (!output.out_filters.empty() || !output.err_filters.empty()) {
    if (!output.tee.any()) lines.emplace_back("the duplicate filters have no effect: they see only lines of --tee");
    if (spec.log_dir == "/dev/null") lines.emplace_back("the duplicate filters have no effect: --log_dir is /dev/null");
  }
  return lines;
}

}  // namespace ddprun
