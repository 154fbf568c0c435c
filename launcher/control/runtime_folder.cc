#include "launcher/control/runtime_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* variable = "DDPRUN_RUNTIME_DIR";
constexpr std::string_view socket_suffix = ".sock";

// Returns why agents do not use a folder; empty when only this user can enter it. It calls lstat(2), since another user
// may have put a symbolic link there.
std::string refusal(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return errno_text(errno);
  if (!S_ISDIR(info.st_mode)) return "it is not a folder";
  if (info.st_uid != ::geteuid()) return fmt::format("it belongs to another user (uid {})", info.st_uid);
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fmt::format("other users may enter it (its mode is {:o}, not 700)", info.st_mode & 0777);
  return {};
}

bool is_private_folder(const fs::path& folder) {
  return refusal(folder).empty();
}

std::string folder_in_tmp() {
  return "/tmp/ddprun-" + std::to_string(::geteuid());
}

bool is_set(const Environment& environment) {
  return !environment.get(variable).value_or("").empty();
}

// The folders whose names are fixed.
std::vector<fs::path> named_folders(const Environment& environment) {
  if (is_set(environment)) return {fs::path(*environment.get(variable))};
  std::vector<fs::path> folders;
  if (const auto own = environment.get("XDG_RUNTIME_DIR"); own && !own->empty())
    folders.push_back(fs::path(*own) / "ddprun");
  if (const auto system = fs::path("/run/user") / std::to_string(::geteuid()) / "ddprun";
      folders.empty() || folders[0] != system)
    folders.push_back(system);
  folders.emplace_back(folder_in_tmp());
  return folders;
}

std::vector<fs::path> more_folders_in_tmp() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  const auto prefix = folder_in_tmp() + ".";
  for (const auto& entry : fs::directory_iterator("/tmp", ignored))
    if (entry.path().string().starts_with(prefix) && is_private_folder(entry.path())) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

// Process ids have a meaning within their namespace only. Without /proc the inode is 0.
std::string name_end() {
  struct stat info {};
  const bool known = ::stat("/proc/self/ns/pid", &info) == 0;
  return fmt::format("-{}{}", known ? info.st_ino : 0, socket_suffix);
}

struct SocketName {
  pid_t pid = 0;
  bool own_namespace = false;
};
// Returns nullopt for a file that is no agent's socket.
std::optional<SocketName> parse_socket_name(const std::string& name) {
  SocketName parsed;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), parsed.pid);
  const std::string_view rest(end);
  if (status != std::errc{} || parsed.pid <= 0 || !rest.starts_with('-') || !rest.ends_with(socket_suffix))
    return std::nullopt;
  parsed.own_namespace = rest == name_end();
  return parsed;
}

bool is_dead(pid_t process) {
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::vector<fs::path> runtime_folders(const Environment& environment) {
  auto folders = named_folders(environment);
  if (is_set(environment)) return folders;
  for (auto& folder : more_folders_in_tmp()) folders.push_back(std::move(folder));
  return folders;
}

fs::path own_runtime_folder(const Environment& environment) {
  std::string reasons;
  for (const auto& folder : named_folders(environment)) {
    const int error = ::mkdir(folder.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
    const auto reason = error != 0 ? errno_text(error) : refusal(folder);
    if (reason.empty()) return folder;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", folder.string(), reason);
  }
  if (is_set(environment)) throw Error(Errc::io, reasons);
  if (const auto more = more_folders_in_tmp(); !more.empty()) return more.front();
  auto another = folder_in_tmp() + ".XXXXXX";
  if (!::mkdtemp(another.data())) throw Error(Errc::io, reasons);
  return another;
}

void check_runtime_folder(const Environment& environment) {
  const auto folder = environment.get(variable).value_or("");
  std::error_code ignored;
  if (folder.empty() || fs::symlink_status(folder, ignored).type() == fs::file_type::not_found) return;
  if (const auto reason = refusal(folder); !reason.empty())
    throw make_error(Errc::usage, "{} = {}: {}; no agent uses it", variable, folder, reason);
}

std::string own_socket_name() {
  return std::to_string(::getpid()) + name_end();
}

std::vector<fs::path> agent_sockets(const fs::path& folder) {
  std::vector<fs::path> sockets;
  if (!is_private_folder(folder)) return sockets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = parse_socket_name(entry.path().filename().string());
    if (!name) continue;
    if (name->own_namespace && is_dead(name->pid))
      fs::remove(entry.path(), ignored);
    else
      sockets.push_back(entry.path());
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace ddprun
