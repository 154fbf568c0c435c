#include "worker/trainer/library_handlers.h"

#include <csignal>
#include <dlfcn.h>
#include <string_view>

namespace ddprun::trainer {
namespace {

bool is_of_ucx(const struct sigaction& action) {
  const void* const handler = (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                                                  : reinterpret_cast<void*>(action.sa_handler);
  Dl_info object;
  return ::dladdr(handler, &object) != 0 && object.dli_fname &&
         std::string_view(object.dli_fname).find("libucs") != std::string_view::npos;
}

}  // namespace

void remove_handlers_of_ucx() noexcept {
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || !is_of_ucx(action)) continue;
    action.sa_flags = 0;
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace ddprun::trainer
