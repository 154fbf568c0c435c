#include "launcher/cli/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <type_traits>

#include "common/error.h"
#include "launcher/cli/device_count.h"
#include "rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

// Options of torchrun that are refused with a reason instead of being ignored.
struct Refusal {
  const char* name;
  bool flag;
  const char* why;
};
constexpr Refusal refusals[] = {
    {"run_path", true,
     "runs the script inside the launcher's own Python interpreter, and ddprun has none; leave it out, the script then "
     "runs in its own Python process"},
    {"logs_specs", false,
     "names a plugin written in Python, and ddprun has no interpreter; use --log_dir, --redirects, --tee and the "
     "filters instead"},
};

// torchrun's options other than the refused ones: an abbreviation that torchrun accepts means one of these.
constexpr std::string_view torchrun_options[] = {"duplicate_stderr_filters",
                                                 "duplicate_stdout_filters",
                                                 "event_log_handler",
                                                 "local_addr",
                                                 "local_ranks_filter",
                                                 "log_dir",
                                                 "log_line_prefix_template",
                                                 "master_addr",
                                                 "master_port",
                                                 "max_restarts",
                                                 "module",
                                                 "monitor_interval",
                                                 "nnodes",
                                                 "no_python",
                                                 "node_rank",
                                                 "nproc_per_node",
                                                 "numa_binding",
                                                 "rdzv_backend",
                                                 "rdzv_conf",
                                                 "rdzv_endpoint",
                                                 "rdzv_id",
                                                 "redirects",
                                                 "role",
                                                 "shutdown_timeout",
                                                 "signals_to_handle",
                                                 "standalone",
                                                 "start_method",
                                                 "tee",
                                                 "virtual_local_rank"};

constexpr const char* etcd_v2_is_gone =
    "it uses version 2 of etcd's interface, which etcd has dropped; c10d needs no etcd";

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "PET_NNODES" for "nnodes".
std::string pet_variable(std::string_view name) {
  std::string result = "PET_";
  for (const char c : name) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::vector<OptionInfo> page_options() {
  return {{.name = "help", .short_name = 'h', .flag = true, .help = "prints this page"},
          {.name = "version", .flag = true, .added = true, .help = "prints the version and those of the libraries"},
          {.name = "print_completion",
           .help = "prints the completion script for a shell: bash, zsh or tcsh",
           .values = {"bash", "zsh", "tcsh"}},
          {.name = "man", .flag = true, .added = true, .help = "prints the manual page (ddprun --man | man -l -)"}};
}

template <class T>
void LaunchSettings::define(const std::string& name, T& target, SettingSpec spec, char short_name) {
  settings_.add("launch." + name, target, std::move(spec));
  const bool added =
      std::find(std::begin(torchrun_options), std::end(torchrun_options), name) == std::end(torchrun_options);
  table_.push_back({.name = name, .short_name = short_name, .flag = std::is_same_v<T, bool>, .added = added});
}

LaunchSettings::LaunchSettings() {
  auto& o = options_;
  define("nnodes", o.nnodes, {.help = "number of nodes, N or MIN:MAX"});
  define("nproc_per_node", o.nproc_per_node,
         {.help = "workers on this node: a number, cpu, gpu, xpu or auto", .suggested = {"cpu", "gpu", "xpu", "auto"}});
  define("node_rank", o.node_rank,
         {.help = "rank of this node; binding with static, a preference with c10d and etcd",
          .min = 0,
          .max = SessionLimits::nodes - 1});
  define("rdzv_backend", o.rdzv_backend,
         {.help = "rendezvous back end: c10d (the server forms the rounds), static (torchrun's wire protocol) or etcd "
                  "(etcd v3; depends on no single host)",
          .choices = {"c10d", "static", "etcd"},
          .refused = {{"etcd-v2", etcd_v2_is_gone}}});
  define(
      "rdzv_endpoint", o.rdzv_endpoint,
      {.help = "address of the rendezvous server, HOST[:PORT], with etcd one or several; port 29400 unless given, with "
               "etcd 2379"});
  define("rdzv_id", o.rdzv_id, {.help = "name of the job; nodes with the same name at one endpoint form one job"});
  define("rdzv_conf", o.rdzv_conf,
         {.help = "further settings of the rendezvous, KEY=VALUE[,KEY=VALUE...], times in seconds; token_file=FILE "
                  "authenticates agents on several nodes"});
  define("master_addr", o.master_addr, {.help = "address of node rank 0 (static)"});
  define("master_port", o.master_port, {.help = "port on node rank 0 (static)", .min = 0, .max = 65535});
  define("standalone", o.standalone,
         {.help = "a job of this node alone, on a free port; options that concern other nodes are ignored"});
  define(
      "numa_binding", o.numa_binding,
      {.help = "binds each worker near the GPU of its local rank: to the GPU's NUMA node, that node's socket, a part "
               "of the node's cores, or one of its L3 caches",
       .choices = {"node", "socket", "exclusive", "core-complex"}});
  define("bind", o.bind,
         {.help = "binds each worker to its own cores, or to an L3 cache, NUMA node or socket, near its GPU if it has "
                  "one",
          .choices = {"none", "cores", "l3", "numa", "socket"}});
  define("dry_run", o.dry_run,
         {.help = "prints ranks, devices, cores, environment and command of this node's workers, and starts nothing"});
  define("no_agent_store", o.no_agent_store,
         {.help = "worker 0 serves the workers' store, on a port reserved for it; for PyTorch before 2.2"});
  define("require_auth", o.require_auth,
         {.help = "refuses to run a job whose store anybody could use who reaches its ports"});
  define("mpi", o.mpi,
         {.help = "what the workers get to be one MPI job: none, or pmi1 (MPICH and those derived from it)",
          .choices = {"none", "pmi1"}});
  define("max_restarts", o.max_restarts,
         {.help = "number of failures after which the job is restarted, counted for the whole job", .min = 0});
  define("spares", o.spares,
         {.help = "number of nodes beyond those of --nnodes that stand by to take the place of a lost one, each with a "
                  "process for each of its workers that has made a step",
          .min = 0,
          .max = SessionLimits::nodes});
  define("restart", o.restart,
         {.help = "workers that a failure restarts: failed, those that failed, while the others keep their processes, "
                  "which they have to be able to; all; auto: failed where it is possible, else all",
          .choices = {"auto", "all", "failed"}});
  define("monitor_interval", o.monitor_interval,
         {.help = "accepted for compatibility with torchrun and unused: the kernel reports a worker's exit at once, "
                  "nothing polls",
          .unit = "s",
          .min = 1e-9});
  define(
      "start_method", o.start_method,
      {.help = "accepted for compatibility with torchrun and unused: it concerns Python functions, and a worker is a "
               "program",
       .choices = {"spawn", "fork", "forkserver"}});
  define("event_log_handler", o.event_log_handler,
         {.help = "where torchrun's events go, one JSON object per line: null, console (standard error) or file:PATH",
          .suggested = {"null", "console", "file:"}});
  define("role", o.role, {.help = "name of the workers' role; part of the default prefix of their lines"});
  define("module", o.module, {.help = "runs the script as a Python module (python -m)"}, 'm');
  define("no_python", o.no_python, {.help = "executes the script itself, whatever its extension"});
  define("log_dir", o.log_dir, {.help = "base folder for logs; /dev/null: no log files; default: a temporary folder"});
  define("redirects", o.redirects,
         {.help = "streams written to files: 0 none, 1 stdout, 2 stderr, 3 both, or RANK:N[,RANK:N...]",
          .suggested = {"0", "1", "2", "3"}},
         'r');
  define("tee", o.tee,
         {.help = "streams written to files and to the terminal, values as for --redirects",
          .suggested = {"0", "1", "2", "3"}},
         't');
  define("log_line_prefix_template", o.log_line_prefix_template,
         {.help = "prefix of each worker's lines, in which ${role_name}, ${local_rank}, ${rank} and ${hostname} are "
                  "replaced; default: [${role_name}${local_rank}]:"});
  define("local_ranks_filter", o.local_ranks_filter,
         {.help = "local ranks shown on the terminal, RANK[,RANK...]; default: all; files are not affected"});
  define("duplicate_stdout_filters", o.duplicate_stdout_filters,
         {.help = "copies tee'd lines of stdout that contain any of TEXT[,TEXT...] (,, is a comma) to one file"});
  define("duplicate_stderr_filters", o.duplicate_stderr_filters,
         {.help = "copies tee'd lines of stderr that contain any of TEXT[,TEXT...] (,, is a comma) to one file"});
  define("stdin", o.stdin_ranks,
         {.help = "which workers read ddprun's standard input: all (the default, as torchrun), rank 0 alone, or none; "
                  "the others read /dev/null",
          .choices = {"all", "0", "none"}});
  define("local_addr", o.local_addr, {.help = "address of this node for connections from other nodes"});
  define(
      "health_check", o.health_check,
      {.help = "a command, run by sh -c on each node before it joins the job: a node on which it fails does not join"});
  define(
      "chaos", o.chaos,
      {.help =
           "faults that ddprun injects into this node, with their mean intervals: kill:TIME, freeze:TIME[/DURATION], "
           "cut:TIME[/DURATION], leave:TIME, join:TIME, as kill:29s,freeze:2m/5s;seed=7"});
  define(
      "shutdown_timeout", o.shutdown_timeout,
      {.help = "grace period between the signal that stops a worker and SIGKILL", .unit = "s", .min = 0, .max = 1e8});
  define("uninterruptible_timeout", o.uninterruptible_timeout,
         {.help = "a worker with a thread that sleeps this long without interruption (state D: a file system or a "
                  "device does not answer) has failed; 0: never",
          .unit = "s",
          .min = 0,
          .max = 1e8});
  define("signals_to_handle", o.signals_to_handle,
         {.help = "signals that end the job: forwarded to the workers, SIGKILL after the grace period"});
  define("virtual_local_rank", o.virtual_local_rank,
         {.help = "every worker gets LOCAL_RANK=0 and sees only its own GPU (CUDA_VISIBLE_DEVICES)"});
  define(
      "dashboard", o.dashboard,
      {.help = "serves a page of the running job, and its metrics, to browsers: without a value on a free port of the "
               "loopback interface, else PORT or ADDRESS:PORT (docs/observability.md)"});
  table_.back().bare = "0";
  define(
      "dashboard_token_file", o.dashboard_token_file,
      {.help = "a file (mode 0600) with the token of the page and the metrics, made if there is none; default: a new "
               "token for each job"});
  define(
      "loss_curve", o.loss_curve,
      {.help = "the curve of the training's loss as a line of characters, printed at the end: always, never; auto: on "
               "a terminal",
       .choices = {"auto", "always", "never"}});
  for (const auto& refused : refusals)
    table_.push_back({.name = refused.name, .flag = refused.flag, .refusal = refused.why});
}

void LaunchSettings::add(const std::string& name, std::string& target, SettingSpec spec) {
  define(name, target, std::move(spec));
}

std::vector<OptionInfo> LaunchSettings::options_and_pages() const {
  auto all = table_;
  for (auto& page : page_options()) all.push_back(std::move(page));
  return all;
}

Origin LaunchSettings::origin(std::string_view name) const {
  const auto* setting = settings_.find("launch." + std::string(name));
  if (!setting) throw make_error(Errc::internal, "there is no launch option {}", name);
  return setting->source.origin;
}

bool LaunchSettings::is_set(std::string_view name) const {
  return origin(name) > Origin::cluster;
}

void LaunchSettings::apply_environment(const Environment& environment) {
  // torchrun's other variables for some options. A PET_ variable overrides them, since it is assigned later.
  struct Alias {
    const char* variable;
    const char* key;
  };
  constexpr Alias aliases[] = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "launch.shutdown_timeout"},
                               {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "launch.log_line_prefix_template"},
                               {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "launch.uninterruptible_timeout"}};
  for (const auto& alias : aliases)
    if (const auto value = environment.get(alias.variable); value && !value->empty())
      settings_.assign(alias.key, *value, {Origin::environment, alias.variable});
  constexpr const char* share_variable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
  if (environment.get(share_variable) == "1")
    settings_.assign("launch.no_agent_store", "1", {Origin::environment, share_variable});
  for (const auto& option : table_) {
    const auto variable = pet_variable(option.name);
    auto value = environment.get(variable);
    if (!value || value->empty()) continue;
    // torchrun's flags are integers in the environment: anything but 0 is on.
    if (const auto number = option.flag ? whole_number(*value) : std::nullopt) value = *number == 0 ? "0" : "1";
    if (!option.refusal.empty()) {
      if (option.flag && value == "0") continue;
      throw make_error(Errc::usage, "{}: --{} {}", variable, option.name, option.refusal);
    }
    settings_.assign("launch." + option.name, *value, {Origin::environment, variable});
  }
}

void LaunchSettings::assign_from_command_line(std::string_view name, std::string_view value) {
  settings_.assign("launch." + std::string(name), value, {Origin::command_line, "--" + std::string(name)});
}

NodeCount parse_node_count(std::string_view text) {
  const auto colon = text.find(':');
  const auto min = whole_number(text.substr(0, colon));
  const auto max = colon == std::string_view::npos ? min : whole_number(text.substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min || *max > SessionLimits::nodes)
    throw make_error(Errc::usage, "--nnodes = {}: expected N or MIN:MAX with 1 <= MIN <= MAX <= {}", text,
                     SessionLimits::nodes);
  return {*min, *max};
}

int resolve_nproc(std::string_view text, const Environment& environment) {
  const auto number = whole_number(text);
  if (number && *number >= 1 && *number <= SessionLimits::workers) return *number;
  if (text == "cpu") return usable_cpus();
  if (text == "gpu" || text == "auto") {
    const int gpus = visible_gpus(environment);
    if (gpus > 0) return gpus;
    if (text == "auto") return usable_cpus();
    throw make_error(Errc::usage, "--nproc_per_node = gpu: CUDA is not available: this machine shows no GPU");
  }
  if (text == "xpu") {
    if (const int xpus = visible_xpus(environment); xpus > 0) return xpus;
    throw make_error(Errc::usage, "--nproc_per_node = xpu: Xpu is not available: this machine shows no Intel GPU");
  }
  throw make_error(Errc::usage, "--nproc_per_node = {}: expected a number from 1 to {}, cpu, gpu, xpu or auto", text,
                   SessionLimits::workers);
}

}  // namespace ddprun
