#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_dir.h"

// Real etcd servers, each in a folder of its own under the test's temporary folder.
namespace ddprun::testing {

// A cluster of one or more members. Members can be stopped and started again with their data.
class EtcdCluster {
 public:
  // Skips the test where etcd is not installed.
  explicit EtcdCluster(std::size_t members = 1) : members_(members) {
    for (const char* folder : {"/usr/bin", "/usr/local/bin"})
      if (program_.empty() && std::filesystem::exists(std::filesystem::path(folder) / "etcd"))
        program_ = std::string(folder) + "/etcd";
    if (program_.empty()) SKIP("etcd is not installed (etcd-server)");
    for (int attempt = 0; !try_to_start(); ++attempt)
      if (attempt == 5) throw std::runtime_error("etcd does not start:\n" + log(0));
  }

  // Returns a text such as "127.0.0.1:1234,127.0.0.1:1236".
  std::string endpoints() const {
    std::string text;
    for (const auto& member : members_) text += (text.empty() ? "" : ",") + client(member);
    return text;
  }
  int port(std::size_t index = 0) const { return members_.at(index).client_port; }

  void kill(std::size_t index) { members_.at(index).process.reset(); }
  // Sends SIGKILL and starts the member again with the same data. Returns when it serves.
  void restart(std::size_t index) {
    kill(index);
    if (!start(index) || !wait_until_ready(index))
      throw std::runtime_error("etcd does not start again:\n" + log(index));
  }

 private:
  struct Member {
    int client_port = 0, peer_port = 0;
    int lives = 0;
    std::unique_ptr<Child> process;
  };

  static std::string client(const Member& member) { return "127.0.0.1:" + std::to_string(member.client_port); }
  static std::string peer(const Member& member) { return "http://127.0.0.1:" + std::to_string(member.peer_port); }
  std::filesystem::path file(std::size_t index, const std::string& name) const {
    return folder_ / (name + std::to_string(attempt_) + "-" + std::to_string(index));
  }
  std::string log(std::size_t index) const {
    std::ifstream in(file(index, "log" + std::to_string(members_[index].lives)));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Another process may have taken a port meanwhile: in that case all members are started again with new ports.
  bool try_to_start() {
    ++attempt_;
    for (auto& member : members_) member = {.client_port = free_port(), .peer_port = free_port()};
    for (std::size_t i = 0; i < members_.size(); ++i) start(i);
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (!wait_until_ready(i)) return false;
    return true;
  }

  bool start(std::size_t index) {
    std::string all;
    for (std::size_t i = 0; i < members_.size(); ++i)
      all += (all.empty() ? "m" : ",m") + std::to_string(i) + "=" + peer(members_[i]);
    auto& member = members_[index];
    ++member.lives;
    const std::string url = "http://" + client(member);
    member.process = std::make_unique<Child>(std::vector<std::string>{
        program_, "--name=m" + std::to_string(index), "--data-dir=" + file(index, "data").string(),
        "--listen-client-urls=" + url, "--advertise-client-urls=" + url, "--listen-peer-urls=" + peer(member),
        "--initial-advertise-peer-urls=" + peer(member), "--initial-cluster=" + all, "--unsafe-no-fsync",
        "--logger=zap", "--log-outputs=" + file(index, "log" + std::to_string(member.lives)).string()});
    return true;
  }

  bool wait_until_ready(std::size_t index) {
    auto& process = *members_[index].process;
    bool ended = false, ready = false;
    process.wait_until(
        [&] {
          ready = log(index).find("serving client traffic") != std::string::npos;
          siginfo_t info{};
          ended = ::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                  info.si_pid != 0;
          return ready || ended;
        },
        "etcd", std::chrono::seconds(60));
    return ready;
  }

  TempDir folder_;
  std::string program_;
  int attempt_ = 0;
  std::vector<Member> members_;
};

}  // namespace ddprun::testing
