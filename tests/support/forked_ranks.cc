#include "tests/support/forked_ranks.h"

#include <csignal>
#include <cstdlib>
#include <poll.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

namespace ddprun::testing {
namespace {

struct Pipe {
  UniqueFd read, write;
};
Pipe make_pipe() {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe: " + errno_text(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

[[noreturn]] void run_child(int rank, const ForkedRanks::Body& body, const UniqueFd& port_pipe,
                            const UniqueFd& report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::uint16_t port = 0;
  if (::read(port_pipe.get(), &port, sizeof(port)) != sizeof(port)) ::_exit(3);
  std::string text;
  try {
    text = body(rank, port);
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (::write(report.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(4);
  ::_exit(0);
}

}  // namespace

ForkedRanks::ForkedRanks(int size, const Body& body) {
  for (int rank = 0; rank < size; ++rank) {
    auto port = make_pipe();
    auto report = make_pipe();
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork: " + errno_text(errno));
    if (pid == 0) {
      for (auto& sibling : children_) sibling = Child{};
      port.write.reset();
      report.read.reset();
      run_child(rank, body, port.read, report.write);
    }
    children_.push_back({pid, std::move(port.write), std::move(report.read)});
  }
  server_ = std::make_unique<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  const auto number = server_->port();
  for (auto& child : children_) {
    if (::write(child.port.get(), &number, sizeof(number)) != sizeof(number)) throw std::runtime_error("child died");
  }
}

ForkedRanks::~ForkedRanks() {
  for (auto& child : children_) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
  }
}

void ForkedRanks::signal(int rank, int number) {
  ::kill(pid(rank), number);
}

std::string ForkedRanks::result(int rank, Deadline deadline) {
  const int fd = children_[static_cast<std::size_t>(rank)].report.get();
  std::string text;
  while (true) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, deadline.poll_timeout_ms()) == 0) {
      throw make_error(Errc::timeout, "rank {} has not ended; its output so far: \"{}\"", rank, text);
    }
    char buffer[4096];
    const auto count = ::read(fd, buffer, sizeof(buffer));
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace ddprun::testing
