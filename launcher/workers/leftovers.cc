#include "launcher/workers/leftovers.h"

#include <cerrno>
#include <csignal>
#include <sys/wait.h>

#include "launcher/workers/descendants.h"
#include "launcher/workers/worker_process.h"

namespace ddprun {

Leftovers::Leftovers(Guardian& guardian) : guardian_(guardian) {
  reap_children(guardian);
  int status = 0;
  if (::waitpid(-1, &status, WNOHANG) == 0)
    for (const pid_t pid : living_children()) inherited_.insert(pid);
  std::erase_if(inherited_, [&](pid_t pid) { return guardian.owns(pid); });
}

std::vector<pid_t> Leftovers::processes() const {
  auto children = living_children();
  std::erase_if(children, [&](pid_t pid) { return guardian_.owns(pid) || inherited_.contains(pid); });
  return children;
}

// This takes one system call in the usual case, in which waitid() reports no child at all. Otherwise /proc is searched,
// since waitid() also reports children that are not the job's and a restarted guardian.
bool Leftovers::none() const {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return true;
  return (!inherited_.empty() || guardian_.restarted()) && processes().empty();
}

void Leftovers::signal(int signal_number) {
  for (const pid_t pid : processes())
    if (signalled_.insert(pid).second) ::kill(pid, signal_number);
}

}  // namespace ddprun
