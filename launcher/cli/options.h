#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/config/settings.h"
#include "ddprun/common/environment.h"

namespace ddprun {

// What the user asked of the launcher: torchrun's options with torchrun's names, units and defaults. Texts with a
// grammar of their own (nnodes, nproc_per_node, rdzv_conf, redirects, tee, lists) are kept as typed and parsed by
// whoever uses them.
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
  int max_restarts = 0;
  double monitor_interval = 0.1;
  std::filesystem::path log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  bool no_python = false;
  bool module = false;
  int shutdown_timeout = 30;
  std::string local_addr;
  std::string role = "default";
  std::string start_method = "spawn";
  std::string event_log_handler = "null";
  std::string log_line_prefix_template;
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool virtual_local_rank = false;
  std::string hosts;
  std::string hostfile;
  std::string ssh = "ssh";
  std::string env;
};

// One option as the command line sees it; its type, bounds and help are in the Setting "launch.<name>".
struct OptionInfo {
  std::string name;      // with underscores
  char short_name = 0;   // 'r' for -r, 0 for none
  bool flag = false;     // takes no value
  bool added = false;    // torchrun has no such option: an abbreviation that torchrun takes stays torchrun's
  std::string refusal;   // torchrun has it, this program refuses it by name: why; empty: supported
  std::string describe;  // for an option that is no Setting: its help, and values to choose from
  std::vector<std::string> values;
  std::string value;  // the same: what its value is called in a usage line
};

// "PET_NNODES" for "nnodes".
std::string pet_variable(std::string_view name);

// Options that print a page and are no settings.
std::vector<OptionInfo> page_options();

// The launcher's options, each defined once: name, type, default, bounds, help, short spelling. Precedence is
// Settings': command line > PET_<NAME> > [launch] section of a train.cfg > cluster (discovery.h) > default.
class LaunchSettings {
 public:
  LaunchSettings();
  LaunchSettings(const LaunchSettings&) = delete;
  LaunchSettings& operator=(const LaunchSettings&) = delete;

  const LaunchOptions& options() const { return options_; }
  Settings& settings() { return settings_; }
  const Settings& settings() const { return settings_; }
  const std::vector<OptionInfo>& table() const { return table_; }
  // The table and the pages: all that a command line may have.
  std::vector<OptionInfo> options_and_pages() const;

  // True when a person (command line, environment, file) gave the option a value.
  bool given(std::string_view name) const;
  Origin origin(std::string_view name) const;

  // Reads PET_<NAME> for every option, TORCH_ELASTIC_SHUTDOWN_TIMEOUT, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE and
  // TORCH_DISABLE_SHARE_RDZV_TCP_STORE. Throws Errc::usage, also for a PET_ variable of a refused option.
  void apply_environment(const Environment& environment);
  void assign_from_command_line(std::string_view name, std::string_view value);

 private:
  template <class T>
  void add(const std::string& name, T& target, SettingSpec spec, char short_name = 0);

  LaunchOptions options_;
  Settings settings_;
  std::vector<OptionInfo> table_;
};

// MIN:MAX of --nnodes. Throws Errc::usage.
struct NodeCount {
  int min = 1;
  int max = 1;
};
NodeCount parse_node_count(std::string_view text);

// The number of workers that --nproc_per_node asks for: a number, or cpu, gpu, xpu or auto as this machine has them.
// Throws Errc::usage.
int resolve_nproc(std::string_view text, const Environment& environment);

}  // namespace ddprun
