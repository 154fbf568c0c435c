#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

// Hosts with a real sshd each, which accepts a key that this class creates; keys and configuration are in a temporary
// folder. Host 0 is the user's machine and runs no sshd.
namespace ddprun::testing {

class SshHosts {
 public:
  using Words = std::vector<std::string>;

  // Returns why such hosts cannot be created here; empty if they can.
  static std::string why_not() {
    for (const auto* program : {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"})
      if (!std::filesystem::exists(program))
        return std::string(program) + " is not installed (Debian: openssh-server, openssh-client)";
    return NetnsHosts::why_not();
  }

  explicit SshHosts(int count) : hosts_(count + 1) {
    ::mkdir("/run/sshd", 0755);  // sshd requires this empty folder
    for (const auto* key : {"host_key", "user_key"})
      run_child({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key)});
    std::filesystem::copy_file(path("user_key.pub"), path("authorized_keys"));
    std::ifstream public_key(path("host_key.pub"));
    const std::string key{std::istreambuf_iterator<char>(public_key), {}};
    for (int host = 1; host <= count; ++host) {
      std::ofstream(path("known_hosts"), std::ios::app) << address(host) << " " << key;
      start_sshd(host);
    }
  }
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;
  // The session of a connection that was cut lives until TCP gives up.
  ~SshHosts() {
    for (int host = 1; host <= static_cast<int>(sshd_.size()); ++host)
      for (const pid_t pid : processes(host)) ::kill(pid, SIGKILL);
  }

  std::string address(int host) const { return hosts_.address(host); }
  NetnsHosts& network() { return hosts_; }
  // The processes on a host other than the sshd that listens there.
  std::vector<pid_t> processes(int host) const {
    auto all = hosts_.processes(host);
    std::erase(all, sshd_.at(static_cast<std::size_t>(host - 1))->pid());
    return all;
  }
  // Returns the value for --ssh.
  std::string ssh() const {
    return "ssh -F none -i " + path("user_key") + " -o UserKnownHostsFile=" + path("known_hosts");
  }
  // A command line that runs on the user's machine.
  Words at_user(const Words& command) const {
    auto words = hosts_.enter(0);
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

 private:
  std::string path(const std::string& file) const { return (folder_ / file).string(); }

  void start_sshd(int host) {
    const auto config = path("sshd_config" + std::to_string(host));
    std::ofstream(config) << "ListenAddress " << address(host) << "\nHostKey " << path("host_key")
                          << "\nAuthorizedKeysFile " << path("authorized_keys")
                          << "\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
                          << "PasswordAuthentication no\nPrintMotd no\n"
                          << "SetEnv SHLVL=1\n";  // a nested bash does not read ~/.bashrc
    auto words = hosts_.enter(host);
    for (const auto& word : Words{"/usr/sbin/sshd", "-D", "-e", "-f", config}) words.push_back(word);
    sshd_.push_back(std::make_unique<Child>(words));
    sshd_.back()->wait_for_err("Server listening");
  }

  TempDir folder_;
  NetnsHosts hosts_;
  std::vector<std::unique_ptr<Child>> sshd_;
};

}  // namespace ddprun::testing
