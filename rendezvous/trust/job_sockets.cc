#include "rendezvous/trust/job_sockets.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>

#include "common/unique_fd.h"

namespace ddprun {
namespace {

constexpr std::size_t max_known = 65'536;
constexpr int max_ancestors = 64;  // a chain of parents that changes while it is followed might have no end

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string path_of(pid_t process, const char* file) {
  return "/proc/" + std::to_string(process) + "/" + file;
}

// "pid (name) state parent ...", where the name may contain blanks and parentheses. -1: there is no such process.
pid_t parent_of(pid_t process) {
  const UniqueFd file(::open(path_of(process, "stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const auto got = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (got <= 0) return -1;
  text[got] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  pid_t parent = -1;
  return name_end && std::sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

bool descends(pid_t process, pid_t ancestor) {
  for (int i = 0; i < max_ancestors && process > 0; ++i) {
    if (process == ancestor) return true;
    process = parent_of(process);
  }
  return false;
}

// "socket:[NUMBER]"
std::optional<std::uint64_t> socket_inode(std::string_view link) {
  constexpr std::string_view before = "socket:[";
  if (!link.starts_with(before) || !link.ends_with(']')) return std::nullopt;
  link.remove_prefix(before.size());
  link.remove_suffix(1);
  return number<std::uint64_t>(link);
}

}  // namespace

bool JobSockets::hold(std::uint64_t inode) {
  if (const auto found = known_.find(inode); found != known_.end() && counts(found->second)) return true;
  if (known_.size() > max_known) known_.clear();
  add_children();
  if (search(inode)) return true;
  find_processes();
  return search(inode);
}

bool JobSockets::search(std::uint64_t inode) {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const auto at = (next_ + i) % processes_.size();
    if (!remember_sockets_of(processes_[at], inode) || !counts(processes_[at])) continue;
    next_ = at + 1;
    return true;
  }
  return false;
}

bool JobSockets::remember_sockets_of(pid_t process, std::uint64_t wanted) {
  const Folder folder(::opendir(path_of(process, "fd").c_str()));
  bool found = false;
  while (const auto* entry = folder ? ::readdir(folder.get()) : nullptr) {
    char link[64];
    const auto size = ::readlinkat(::dirfd(folder.get()), entry->d_name, link, sizeof link);
    const auto inode = size > 0 ? socket_inode({link, static_cast<std::size_t>(size)}) : std::nullopt;
    if (!inode) continue;
    known_.insert_or_assign(*inode, process);
    found = found || *inode == wanted;
  }
  return found;
}

void JobSockets::add(pid_t process) {
  if (listed_.insert(process).second) processes_.push_back(process);
}

// The kernel lists them in one file, if it was built so.
void JobSockets::add_children() {
  const auto old = processes_.size();
  const auto agent = std::to_string(agent_);
  std::ifstream file("/proc/" + agent + "/task/" + agent + "/children");
  for (pid_t child = 0; file >> child;) add(child);
  if (processes_.size() > old) next_ = old;
}

void JobSockets::find_processes() {
  known_.clear();
  processes_.clear();
  listed_.clear();
  const Folder folder(::opendir("/proc"));
  while (const auto* entry = folder ? ::readdir(folder.get()) : nullptr)
    if (const auto process = number<pid_t>(entry->d_name); process && counts(*process)) add(*process);
  next_ = 0;
}

bool JobSockets::counts(pid_t process) const {
  return descends(process, agent_) || runs_program(process);
}

bool JobSockets::runs_program(pid_t process) const {
  struct stat own {
  }, theirs{};
  return !program_.empty() && ::stat(program_.c_str(), &own) == 0 &&
         ::stat(path_of(process, "exe").c_str(), &theirs) == 0 && own.st_dev == theirs.st_dev &&
         own.st_ino == theirs.st_ino;
}

}  // namespace ddprun
