#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

// Hosts as network namespaces: each has a loopback and one interface on a common switch (a bridge in a namespace of its
// own), so that the network of this machine is not changed. Needs root and iproute2.
namespace ddprun::testing {

class NetnsHosts {
 public:
  // Returns why hosts cannot be created here; empty if they can.
  static std::string why_not() {
    if (::geteuid() != 0) return "network namespaces need root";
    const auto probe = fmt::format("ddp{}p", ::getpid());
    if (std::system(fmt::format("ip netns add {0} >/dev/null 2>&1 && ip netns del {0}", probe).c_str()) != 0)
      return "this machine does not permit network namespaces (ip netns add failed)";
    return {};
  }

  // Removes the hosts of a process that ended without removing them.
  static void remove_all_of(pid_t maker) {
    std::error_code none;
    for (const auto& network : std::filesystem::directory_iterator("/run/netns", none)) {
      const auto name = network.path().filename().string();
      const auto prefix = prefix_of(maker);
      if (name.starts_with(prefix + "h") || name == prefix + "s") quietly("ip netns del " + name);
    }
  }

  explicit NetnsHosts(int count) : prefix_(prefix_of(::getpid())), count_(count) {
    try {
      make();
    } catch (...) {
      remove();
      throw;
    }
  }
  NetnsHosts(const NetnsHosts&) = delete;
  NetnsHosts& operator=(const NetnsHosts&) = delete;
  ~NetnsHosts() { remove(); }

  std::string address(int host) const { return fmt::format("10.213.7.{}", host + 1); }
  std::string address6(int host) const { return fmt::format("fd00:213:7::{}", host + 1); }
  // Returns the prefix of a command line that runs on the host; exec replaces the prefix by the command.
  std::vector<std::string> enter(int host) const { return {"/usr/bin/nsenter", "--net=/run/netns/" + name(host)}; }
  // Returns that prefix with a process-id namespace of its own: ranks share memory only with ranks of the same command,
  // as on separate machines. The prefix stays as the parent: SIGKILL to it ends every process of the command, like a
  // loss of power.
  std::vector<std::string> enter_isolated(int host) const {
    auto words = enter(host);
    for (const auto& word : isolated()) words.push_back(word);
    return words;
  }
  // Returns why enter_isolated does not work here; empty if it does.
  static std::string why_not_isolated() {
    std::string probe;
    for (const auto& word : isolated()) probe += word + " ";
    if (std::system((probe + "true >/dev/null 2>&1").c_str()) == 0) return {};
    return "this machine does not permit process-id namespaces with a /proc of their own (" + probe + "failed)";
  }
  // Does what enter does, under a host name.
  std::vector<std::string> enter_as(const std::string& host_name, int host) const {
    std::vector<std::string> words{"/usr/bin/unshare", "--uts", "/bin/sh", "-c", "hostname \"$0\" && exec \"$@\"",
                                   host_name};
    for (const auto& word : enter(host)) words.push_back(word);
    return words;
  }
  // All processes that run on the host.
  std::vector<pid_t> processes(int host) const {
    std::vector<pid_t> found;
    struct ::stat its {
    }, own{};
    if (::stat(network(host).c_str(), &its) != 0) return found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      if (const pid_t pid = std::atoi(entry.path().filename().c_str());
          pid > 0 && ::stat((entry.path() / "ns/net").c_str(), &own) == 0 && own.st_ino == its.st_ino)
        found.push_back(pid);
    return found;
  }
  // Path of the network namespace, for setns(2).
  std::string network(int host) const { return "/run/netns/" + name(host); }
  int count() const { return count_; }
  // Path of the network namespace with the switch, and the name of the interface there to which the host is connected.
  std::string switch_network() const { return "/run/netns/" + prefix_ + "s"; }
  std::string cable(int host) const { return fmt::format("{}v{}", prefix_, host); }
  // Takes the host's cable off the switch, which then passes on nothing of it.
  void unplug(int host) { inside(prefix_ + "s", fmt::format("link set {} nomaster", cable(host))); }
  // Takes the host's link down, and up again: its packets are dropped, no connection is closed.
  void link_down(int host) { inside(prefix_ + "s", fmt::format("link set {} down", cable(host))); }
  void link_up(int host) { inside(prefix_ + "s", fmt::format("link set {} up", cable(host))); }
  // Sets the bandwidth of the link in both directions, for example "100mbit". The bucket holds the largest packet that
  // the kernel passes on in one piece: splitting those would cost a core. The queue is as short as a switch's.
  void limit(int host, const std::string& rate) {
    const auto bucket = fmt::format("root tbf rate {} burst 256kb latency 5ms", rate);
    must(fmt::format("nsenter --net=/run/netns/{0}s tc qdisc add dev {0}v{1} {2}", prefix_, host, bucket));
    must(fmt::format("nsenter --net=/run/netns/{} tc qdisc add dev eth0 {}", name(host), bucket));
  }

 private:
  static std::vector<std::string> isolated() {
    return {"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  }
  static std::string prefix_of(pid_t maker) { return fmt::format("ddp{}", maker); }
  std::string name(int host) const { return fmt::format("{}h{}", prefix_, host); }

  static void must(const std::string& command) {
    if (std::system((command + " 2>/dev/null").c_str()) != 0) throw std::runtime_error("failed: " + command);
  }

  // Runs ip in a namespace, through nsenter: ip's own option -n remounts /sys, which a chroot does not permit.
  static void inside(const std::string& name, const std::string& words) {
    must(fmt::format("nsenter --net=/run/netns/{} ip {}", name, words));
  }

  void make() {
    const auto bridge = prefix_ + "s";
    must("ip netns add " + bridge);
    inside(bridge, "link add br0 type bridge");
    inside(bridge, "link set br0 up");
    for (int host = 0; host < count_; ++host) {
      must("ip netns add " + name(host));
      inside(bridge, fmt::format("link add {} type veth peer name eth0 netns {}", cable(host), name(host)));
      inside(bridge, fmt::format("link set {} master br0 up", cable(host)));
      inside(name(host), "link set lo up");
      inside(name(host), fmt::format("address add {}/24 dev eth0", address(host)));
      inside(name(host), fmt::format("address add {}/64 dev eth0 nodad", address6(host)));
      inside(name(host), "link set eth0 up");
    }
  }

  void remove() {
    for (int host = 0; host < count_; ++host) quietly(fmt::format("ip netns del {}", name(host)));
    quietly(fmt::format("ip netns del {}s", prefix_));
  }
  static void quietly(const std::string& command) {
    [[maybe_unused]] const int rc = std::system((command + " 2>/dev/null").c_str());
  }

  std::string prefix_;
  int count_;
};

}  // namespace ddprun::testing
