#include "rendezvous/trust/job_sockets.h"

#include <csignal>
#include <memory>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/tcp_socket.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using ddprun::testing::Child;

namespace {

std::uint64_t inode_of(int fd) {
  struct stat info {};
  REQUIRE(::fstat(fd, &info) == 0);
  return info.st_ino;
}

UniqueFd new_socket() {
  return listen_on("127.0.0.1", 0);
}

// Starts a process of another program that holds a socket of this one, as its standard input.
std::unique_ptr<Child> holder(int socket, const std::string& script) {
  const UniqueFd before(::dup(STDIN_FILENO));
  REQUIRE(::dup2(socket, STDIN_FILENO) == STDIN_FILENO);
  auto child = std::make_unique<Child>(std::vector<std::string>{"/bin/sh", "-c", script});
  REQUIRE(::dup2(before.get(), STDIN_FILENO) == STDIN_FILENO);
  return child;
}

}  // namespace

TEST_CASE("the sockets of an agent and of its descendants belong to its job") {
  auto own = new_socket(), of_child = new_socket();
  const auto inode = inode_of(of_child.get());
  const auto child = holder(of_child.get(), "echo ready; exec sleep 60");
  child->wait_for_out("ready");
  of_child.reset();
  JobSockets sockets(::getpid(), {});
  CHECK(sockets.hold(inode_of(own.get())));
  CHECK(sockets.hold(inode));
  CHECK(sockets.hold(inode));
  CHECK_FALSE(sockets.hold(1));
  const auto late = new_socket();  // it is made after the first search
  CHECK(sockets.hold(inode_of(late.get())));
}

TEST_CASE("a descendant that starts its own session and loses its parent still counts") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  auto socket = new_socket();
  const auto inode = inode_of(socket.get());
  const auto child = holder(socket.get(), "exec 3<&0; setsid sh -c 'echo $$; exec sleep 60' <&3 & exit 0");
  child->wait_for_out("\n");
  const auto orphan = std::stoi(child->out());
  socket.reset();
  CHECK(JobSockets(::getpid(), {}).hold(inode));
  ::kill(orphan, SIGKILL);
  child->wait();
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

TEST_CASE("sockets of processes outside of the job do not count, whatever their user") {
  auto inside = new_socket(), outside = new_socket();
  const auto agent = holder(inside.get(), "echo ready; exec sleep 60");
  agent->wait_for_out("ready");
  JobSockets sockets(agent->pid(), {});
  CHECK(sockets.hold(inode_of(inside.get())));
  CHECK_FALSE(sockets.hold(inode_of(outside.get())));
}

TEST_CASE("a process that runs the agent's program counts") {
  auto socket = new_socket();
  Child agent({"/bin/sh", "-c", "echo ready; exec sleep 60"});
  agent.wait_for_out("ready");
  CHECK(JobSockets(agent.pid(), "/proc/self/exe").hold(inode_of(socket.get())));
  CHECK_FALSE(JobSockets(agent.pid(), "/bin/sh").hold(inode_of(socket.get())));
}
