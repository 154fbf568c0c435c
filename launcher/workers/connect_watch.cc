#include "launcher/workers/connect_watch.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/xattr.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"

namespace ddprun {
namespace {

// Returns the inode of a link such as "socket:[1234]".
std::optional<ino_t> socket_inode(const std::string& descriptor) {
  constexpr std::string_view prefix = "socket:[";
  char target[64];
  const auto size = ::readlink(descriptor.c_str(), target, sizeof(target));
  if (size <= 0 || !std::string_view(target, static_cast<std::size_t>(size)).starts_with(prefix)) return std::nullopt;
  ino_t inode = 0;
  std::from_chars(target + prefix.size(), target + size, inode);
  return inode;
}

bool is_tcp(const std::string& descriptor) {
  char protocol[32] = "";
  const auto size = ::getxattr(descriptor.c_str(), "system.sockprotoname", protocol, sizeof(protocol) - 1);
  return size > 0 && std::strncmp(protocol, "TCP", 3) == 0;
}

// The inode is the tenth word of each line after the first (proc_net_tcp.txt in the kernel's documentation).
void add_inodes(const std::string& table, std::set<ino_t>& inodes) {
  std::string text;
  try {
    text = read_whole_file(table);
  } catch (const Error&) {
    return;  // a kernel without IPv6 has only one table
  }
  std::string_view rest = text;
  for (bool heading = true; !rest.empty(); heading = false) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (heading) continue;
    for (int word = 1; word <= 10; ++word) {
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
      if (word < 10) line.remove_prefix(std::min(line.size(), line.find(' ')));
    }
    ino_t inode = 0;
    std::from_chars(line.data(), line.data() + line.size(), inode);
    inodes.insert(inode);
  }
}

}  // namespace

std::set<ino_t> tcp_sockets(pid_t process) {
  std::set<ino_t> sockets;
  std::error_code gone;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", process), gone);
  for (; !gone && entry != std::filesystem::directory_iterator(); entry.increment(gone)) {
    const auto descriptor = entry->path().string();
    const auto inode = socket_inode(descriptor);
    if (inode && is_tcp(descriptor)) sockets.insert(*inode);
  }
  return sockets;
}

std::set<ino_t> sockets_in_use(pid_t process) {
  std::set<ino_t> inodes;
  for (const char* table : {"tcp", "tcp6"}) add_inodes(fmt::format("/proc/{}/net/{}", process, table), inodes);
  return inodes;
}

bool ConnectWatch::observe(const std::set<ino_t>& sockets, const std::function<std::set<ino_t>()>& in_use, Time now) {
  std::set<ino_t> unknown;
  for (const auto inode : sockets)
    if (!known_.contains(inode)) unknown.insert(inode);
  std::erase_if(refused_, [&](ino_t inode) { return !sockets.contains(inode); });
  while (!attempts_.empty() && now - attempts_.front() > limit + limit / 2) attempts_.pop_front();
  if (!unknown.empty()) {
    const auto used = in_use();
    for (const auto inode : unknown) {
      if (used.contains(inode)) continue;
      if (attempts_.empty()) since_ = now;
      refused_.insert(inode);
      attempts_.push_back(now);
    }
  }
  known_ = sockets;
  if (refused_.empty()) attempts_.clear();
  return attempts_.size() >= attempts && now - since_ >= limit;
}

}  // namespace ddprun
