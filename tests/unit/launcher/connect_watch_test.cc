#include "launcher/workers/connect_watch.h"

#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using std::chrono::seconds;

namespace {

using Inodes = std::set<ino_t>;

ConnectWatch::Time at(int s) {
  return ConnectWatch::Time{} + seconds(s);
}

// Returns the second at which a failure is found, observing every two seconds; -1: never. sockets, in_use: at a second.
int found_at(const std::function<Inodes(int)>& sockets, const std::function<Inodes(int)>& in_use, int end = 60) {
  ConnectWatch watch;
  for (int s = 0; s <= end; s += 2)
    if (watch.observe(
            sockets(s), [&] { return in_use(s); }, at(s)))
      return s;
  return -1;
}

Inodes none(int) {
  return {};
}

}  // namespace

TEST_CASE("a process whose connections are refused again and again is found after ten seconds") {
  CHECK(found_at([](int s) { return Inodes{static_cast<ino_t>(100 + s)}; }, none) == 10);
  // The process tries less and less often, and has a connection to something else.
  const auto slower = [](int s) { return Inodes{7, static_cast<ino_t>(s < 2 ? 100 : s < 6 ? 101 : 102)}; };
  CHECK(found_at(slower, [](int) { return Inodes{7}; }) == 10);
}

TEST_CASE("a process that has begun to fail late is found ten seconds later") {
  const auto late = [](int s) { return s < 20 ? Inodes{} : Inodes{static_cast<ino_t>(s)}; };
  CHECK(found_at(late, none) == 30);
}

TEST_CASE("processes whose connections work are not found") {
  const auto many = [](int s) { return Inodes{static_cast<ino_t>(s), static_cast<ino_t>(s + 1)}; };
  CHECK(found_at(many, many) == -1);                             // new connections all the time
  CHECK(found_at([](int) { return Inodes{100}; }, none) == -1);  // a socket that is never used
  CHECK(found_at([](int s) { return Inodes{static_cast<ino_t>(s / 20)}; }, none) == -1);  // refused now and then
}

TEST_CASE("one look without a refused connection begins anew") {
  const auto pause = [](int s) { return s == 8 ? Inodes{} : Inodes{static_cast<ino_t>(100 + s)}; };
  CHECK(found_at(pause, none) == 20);
}

TEST_CASE("the kernel shows which sockets of a process are in use, and a refused one is not") {
  const UniqueFd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd refused(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::listen(listening.get(), 1) == 0);
  sockaddr_in nobody{};
  nobody.sin_family = AF_INET;
  nobody.sin_port = htons(testing::free_port());
  nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(refused.get(), reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody)) != 0);
  const auto inode = [](const UniqueFd& socket) {
    struct stat info {};
    REQUIRE(::fstat(socket.get(), &info) == 0);
    return info.st_ino;
  };
  const auto sockets = tcp_sockets(::getpid());
  if (!sockets.contains(inode(listening))) SKIP("the kernel does not show the sockets of a process");
  CHECK(sockets.contains(inode(refused)));
  CHECK_FALSE(sockets.contains(inode(other)));
  const auto used = sockets_in_use(::getpid());
  CHECK(used.contains(inode(listening)));
  CHECK_FALSE(used.contains(inode(refused)));
}
