#include "ddprun/launcher/cli/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sched.h>
#include <type_traits>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

// Options of torchrun that are refused by name instead of being ignored.
constexpr std::string_view not_supported[] = {
    "start_method", "event_log_handler",        "run_path",     "local_ranks_filter", "duplicate_stdout_filters",
    "logs_specs",   "duplicate_stderr_filters", "numa_binding", "signals_to_handle",  "virtual_local_rank",
};

std::string pet_name(std::string_view name) {
  std::string result = "PET_";
  for (const char c : name) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Counted without a CUDA library: the device nodes, or the entries of CUDA_VISIBLE_DEVICES where it is set.
int visible_gpus(const Environment& environment) {
  if (const auto list = environment.get("CUDA_VISIBLE_DEVICES")) {
    if (list->empty() || list->front() == '-') return 0;
    return static_cast<int>(std::count(list->begin(), list->end(), ',')) + 1;
  }
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("nvidia") && whole_number(std::string_view(name).substr(6))) ++count;
  }
  return count;
}

}  // namespace

template <class T>
void LaunchSettings::add(const std::string& name, T& target, SettingSpec spec, char short_name) {
  settings_.add("launch." + name, target, std::move(spec));
  table_.push_back({.name = name, .short_name = short_name, .flag = std::is_same_v<T, bool>});
}

LaunchSettings::LaunchSettings() {
  auto& o = options_;
  add("nnodes", o.nnodes, {.help = "number of nodes, N or MIN:MAX"});
  add("nproc_per_node", o.nproc_per_node, {.help = "workers on this node: a number, cpu, gpu or auto"});
  add("node_rank", o.node_rank,
      {.help = "this node's rank; fixed with static, a wish with c10d", .min = 0, .max = SessionLimits::nodes - 1});
  add("rdzv_backend", o.rdzv_backend,
      {.help = "how nodes meet: c10d (rounds formed by the server) or static (torchrun's own wire behaviour)",
       .choices = {"c10d", "static"}});
  add("rdzv_endpoint", o.rdzv_endpoint, {.help = "where nodes meet, HOST[:PORT]; port 29400 unless named"});
  add("rdzv_id", o.rdzv_id, {.help = "the job's name; nodes with the same name at one endpoint form one job"});
  add("rdzv_conf", o.rdzv_conf, {.help = "further settings of the rendezvous, KEY=VALUE[,KEY=VALUE...], in seconds"});
  add("master_addr", o.master_addr, {.help = "address of node rank 0 (static)"});
  add("master_port", o.master_port, {.help = "port at node rank 0 (static)", .min = 0, .max = 65535});
  add("standalone", o.standalone, {.help = "one node by itself on a free port, whatever the other options say"});
  add("bind", o.bind,
      {.help =
           "binds each worker to cores of its own, or to an L3 cache, NUMA node or socket, near its GPU if it has one",
       .choices = {"none", "cores", "l3", "numa", "socket"}});
  add("dry_run", o.dry_run,
      {.help = "prints ranks, devices, cores, environment and command of this node's workers, and starts nothing"});
  add("max_restarts", o.max_restarts,
      {.help = "failures after which the job is restarted, counted job-wide", .min = 0});
  add("monitor_interval", o.monitor_interval,
      {.help = "accepted for torchrun's sake and unused: the kernel reports a worker's death at once, nothing polls",
       .unit = "s",
       .min = 1e-9});
  add("role", o.role, {.help = "name of the workers' role; appears in the prefix of their lines"});
  add("module", o.module, {.help = "run the script as a Python module (python -m)"}, 'm');
  add("no_python", o.no_python, {.help = "execute the script itself, whatever its name ends in"});
  add("log_dir", o.log_dir,
      {.help = "base folder for logs; /dev/null: no files; default: one in the temporary folder"});
  add("redirects", o.redirects,
      {.help = "streams that go to files: 0 none, 1 stdout, 2 stderr, 3 both, or RANK:N[,RANK:N...]"}, 'r');
  add("tee", o.tee, {.help = "streams that go to files and to the terminal, written as for --redirects"}, 't');
  add("local_addr", o.local_addr, {.help = "address of this node as others should dial it"});
  add("shutdown_timeout", o.shutdown_timeout,
      {.help = "grace between the signal that stops a worker and SIGKILL", .unit = "s", .min = 0, .max = 1e8});
  add("hosts", o.hosts,
      {.help = "start the job on these hosts by ssh, HOST[:WORKERS][,HOST...], one agent each (docs/clusters.md)"});
  add("hostfile", o.hostfile, {.help = "the same from a file: a line a host, as 'node1 slots=4' or node1:4"});
  add("ssh", o.ssh, {.help = "the command that reaches a host, as in --ssh='ssh -p 2222'"});
  add("env", o.env, {.help = "further variables that go to the hosts, NAME[=VALUE][,NAME...]"});
  for (const auto name : not_supported) table_.push_back({.name = std::string(name), .supported = false});
}

Origin LaunchSettings::origin(std::string_view name) const {
  const auto* setting = settings_.find("launch." + std::string(name));
  if (!setting) throw make_error(Errc::internal, "there is no launch option {}", name);
  return setting->source.origin;
}

bool LaunchSettings::given(std::string_view name) const {
  return origin(name) > Origin::cluster;
}

void LaunchSettings::apply_environment(const Environment& environment) {
  // A scheduler's own name for the grace: weaker than PET_SHUTDOWN_TIMEOUT, which is assigned after it.
  if (const auto grace = environment.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"); grace && !grace->empty())
    settings_.assign("launch.shutdown_timeout", *grace, {Origin::environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"});
  for (const auto& option : table_) {
    const auto variable = pet_name(option.name);
    auto value = environment.get(variable);
    if (!value || value->empty()) continue;
    if (!option.supported) throw make_error(Errc::usage, "{}: --{} is not supported yet", variable, option.name);
    // torchrun's flags are integers in the environment: anything but 0 is on.
    if (const auto number = option.flag ? whole_number(*value) : std::nullopt) value = *number == 0 ? "0" : "1";
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
  throw make_error(Errc::usage, "--nproc_per_node = {}: expected a number from 1 to {}, cpu, gpu or auto", text,
                   SessionLimits::workers);
}

}  // namespace ddprun
