#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/settings.h"
#include "common/environment.h"

namespace ddprun {

// The values of the launcher's options: torchrun's names, units and defaults. Texts with a grammar of their own
// (nnodes, nproc_per_node, rdzv_conf, redirects, tee, lists) are kept as typed and parsed where they are used.
struct LaunchOptions {
  std::string nnodes = "1:1";
  std::string nproc_per_node = "1";
  int node_rank = 0;
  std::string rdzv_backend = "c10d";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  bool standalone = false;
  std::string numa_binding;
  std::string bind = "none";
  bool dry_run = false;
  bool no_agent_store = false;
  bool require_auth = false;
  std::string mpi = "none";
  int max_restarts = 0;
  int spares = 0;
  std::string restart = "auto";
  double monitor_interval = 0.1;
  std::filesystem::path log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  bool no_python = false;
  bool module = false;
  int shutdown_timeout = 30;
  double uninterruptible_timeout = 0;
  std::string local_addr;
  std::string health_check;
  std::string chaos;
  std::string stdin_ranks = "all";
  std::string role = "default";
  std::string start_method = "spawn";
  std::string event_log_handler = "null";
  std::string log_line_prefix_template;
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool virtual_local_rank = false;
  std::string dashboard;
  std::filesystem::path dashboard_token_file;
  std::string loss_curve = "auto";
};

// One option as the command line sees it. Its type, bounds and help are in the Setting "launch.<name>"; an option that
// has no Setting, such as --help, has its help here.
struct OptionInfo {
  std::string name;     // with underscores
  char short_name = 0;  // 'r' for -r, 0 for none
  bool flag = false;    // takes no value
  bool added = false;   // torchrun has no such option; abbreviations prefer torchrun's options
  std::string bare;     // the value of an option that is given without one; empty: it takes a value
  std::string refusal;  // why an option of torchrun is not supported; empty if it is
  std::string help;
  std::vector<std::string> values;  // values to choose from
  std::string value_name;           // placeholder of the value in a usage line
};

// Options that print a page, such as --help.
std::vector<OptionInfo> page_options();

// The launcher's options, each defined once: name, type, default, bounds, help, short name. Their precedence is that of
// Settings: command line > PET_<NAME> > [launch] section of a train.cfg > cluster (discovery.h) > default.
//
// Owns the values, except those of options that were added, and must not move. Not thread-safe. Errors are Errc::usage.
class LaunchSettings {
 public:
  LaunchSettings();
  LaunchSettings(const LaunchSettings&) = delete;
  LaunchSettings& operator=(const LaunchSettings&) = delete;

  // The values; complete once all origins have been applied.
  const LaunchOptions& options() const { return options_; }
  Settings& settings() { return settings_; }
  const Settings& settings() const { return settings_; }
  // All options except page_options(), in the order of --help.
  const std::vector<OptionInfo>& table() const { return table_; }
  // All options of a command line: the table and page_options().
  std::vector<OptionInfo> options_and_pages() const;

  // Adds an option of an optional part, bound to target, which must outlive this object.
  void add(const std::string& name, std::string& target, SettingSpec spec);

  // Returns whether the user (command line, environment, file) set the option.
  bool is_set(std::string_view name) const;
  Origin origin(std::string_view name) const;

  // Reads PET_<NAME> for every option, TORCH_ELASTIC_SHUTDOWN_TIMEOUT, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE and
  // TORCH_DISABLE_SHARE_RDZV_TCP_STORE. Throws Errc::usage, also for a PET_ variable of a refused option.
  void apply_environment(const Environment& environment);
  // Assigns a value that overrides all other origins. Throws Errc::usage.
  void assign_from_command_line(std::string_view name, std::string_view value);

 private:
  template <class T>
  void define(const std::string& name, T& target, SettingSpec spec, char short_name = 0);

  LaunchOptions options_;
  Settings settings_;
  std::vector<OptionInfo> table_;
};

// --nnodes: N or MIN:MAX.
struct NodeCount {
  int min = 1;
  int max = 1;
};
// Throws Errc::usage.
NodeCount parse_node_count(std::string_view text);

// The number of workers for --nproc_per_node: the number itself, or the number of devices that cpu, gpu, xpu or auto
// mean on this machine. Throws Errc::usage.
int resolve_nproc(std::string_view text, const Environment& environment);

}  // namespace ddprun
