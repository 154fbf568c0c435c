#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

// A real Slurm from this machine's packages: slurmctld, and one slurmd per node, each on a host of its own (network,
// host name and process ids), with a munged of its own. Configuration, state and logs are in a temporary folder.
namespace ddprun::testing {

class SlurmCluster {
 public:
  using Words = std::vector<std::string>;

  // Returns why a cluster cannot be created here; empty if it can.
  static std::string why_not() {
    for (const auto* program : {"slurmctld", "slurmd", "munged"})
      if (!std::filesystem::exists("/usr/sbin/" + std::string(program)))
        return std::string(program) + " is not installed (Debian: slurm-wlm, munge)";
    if (const auto why = NetnsHosts::why_not(); !why.empty()) return why;
    if (std::system("unshare --mount --uts --pid --fork --mount-proc true >/dev/null 2>&1") != 0)
      return "this machine does not permit mount and process id namespaces";
    return {};
  }

  explicit SlurmCluster(int nodes) : hosts_(nodes + 1), nodes_(nodes) {
    ::chmod(folder_.path().c_str(), 0755);
    write_configuration();
    munged_ = std::make_unique<Child>(Words{"/usr/sbin/munged", "--foreground", "--force", "--num-threads=1",
                                            "--key-file=" + path("munge/key"), "--socket=" + path("munge/socket"),
                                            "--pid-file=" + path("munge/pid"), "--log-file=" + path("munge/log"),
                                            "--seed-file=" + path("munge/seed")});
    munged_->wait_until([&] { return std::filesystem::exists(folder_ / "munge/socket"); }, "munged's socket");
    daemons_.push_back(start(0, {"/usr/sbin/slurmctld", "-D"}, "slurmctld"));
    for (int node = 1; node <= nodes_; ++node)
      daemons_.push_back(start(node, {"/usr/sbin/slurmd", "-D", "-N", name(node)}, "slurmd-" + name(node)));
    wait_until_idle();
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  std::filesystem::path operator/(const std::string& file) const { return folder_ / file; }

  // Runs a command of Slurm on the controller's host.
  std::unique_ptr<Child> run(Words command, std::map<std::string, std::string> variables = {}) const {
    variables["SLURM_CONF"] = path("slurm.conf");
    return std::make_unique<Child>(on(0, command, ""), variables);
  }
  Child::Result finish(const Words& command, const std::map<std::string, std::string>& variables = {}) const {
    return run(command, variables)->wait(std::chrono::seconds(90));
  }
  // Kills all processes of a node, as a power failure does.
  void power_off(int node) { daemons_.at(static_cast<std::size_t>(node)).reset(); }

 private:
  std::string path(const std::string& file) const { return (folder_ / file).string(); }
  static std::string name(int node) { return node == 0 ? "ctl" : "n" + std::to_string(node); }

  void write_configuration() const {
    std::filesystem::create_directories(folder_ / "munge");
    std::filesystem::create_directories(folder_ / "state");
    ::chmod(path("munge").c_str(), 0755);
    std::ofstream(path("munge/key")) << std::string(128, 'k') << folder_.path().string();
    ::chmod(path("munge/key").c_str(), 0600);
    std::ofstream names(path("hosts"));
    names << "127.0.0.1 localhost\n";
    for (int node = 0; node <= nodes_; ++node) names << hosts_.address(node) << " " << name(node) << "\n";
    for (int node = 1; node <= nodes_; ++node) std::filesystem::create_directories(folder_ / ("spool-" + name(node)));
    for (const auto* device : {"gpu0", "gpu1"}) std::ofstream(path(device)) << "";
    std::ofstream(path("gres.conf")) << "Name=gpu File=" << path("gpu[0-1]") << "\n";
    std::ofstream(path("slurm.conf"))
        << "ClusterName=test\nSlurmctldHost=ctl\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
        << "AuthInfo=socket=" << path("munge/socket") << "\nStateSaveLocation=" << path("state") << "\n"
        << "SlurmdSpoolDir=" << path("spool-%n") << "\nSlurmctldPidFile=" << path("slurmctld.pid") << "\n"
        << "SlurmdPidFile=" << path("slurmd-%n.pid") << "\nSlurmctldLogFile=" << path("slurmctld.log") << "\n"
        << "SlurmdLogFile=" << path("slurmd-%n.log") << "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        << "JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nMpiDefault=none\n"
        << "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nSwitchType=switch/none\nReturnToService=2\n"
        << "SlurmdParameters=config_overrides\nGresTypes=gpu\nSlurmdTimeout=30\n"
        << "NodeName=n[1-" << nodes_ << "] CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN\n"
        << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
  }

  // Wraps a command so that it runs on a host: in its network, with its name, the names of all hosts, and its own
  // process ids. All of its processes end with the command.
  Words on(int node, const Words& command, const std::string& log) const {
    Words words = hosts_.enter(node);
    const auto prepare = "hostname " + name(node) + " && mount --bind " + path("hosts") + " /etc/hosts && exec \"$@\"" +
                         (log.empty() ? "" : " >" + path(log) + ".out 2>&1");
    for (const auto* word :
         {"/usr/bin/unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"})
      words.emplace_back(word);
    words.push_back(prepare);
    words.emplace_back("sh");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  std::unique_ptr<Child> start(int node, const Words& command, const std::string& log) const {
    return std::make_unique<Child>(on(node, command, log),
                                   std::map<std::string, std::string>{{"SLURM_CONF", path("slurm.conf")}});
  }

  void wait_until_idle() const {
    std::string states;
    std::string expected;
    for (int node = 1; node <= nodes_; ++node) expected += "idle\n";
    const auto deadline = Deadline::in(std::chrono::seconds(60));
    while (states != expected) {
      if (deadline.expired()) throw std::runtime_error("Slurm's nodes are not idle: " + states + logs());
      states = finish({"/usr/bin/sinfo", "-h", "-N", "-o", "%T"}).out;
    }
  }

  std::string logs() const {
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".out" || entry.path().extension() == ".log") {
        std::ifstream file(entry.path());
        text += entry.path().filename().string() + ":\n" + std::string(std::istreambuf_iterator<char>(file), {});
      }
    return text;
  }

  TempDir folder_;
  NetnsHosts hosts_;
  int nodes_;
  std::unique_ptr<Child> munged_;
  std::vector<std::unique_ptr<Child>> daemons_;
};

}  // namespace ddprun::testing
