#include "rendezvous/recovery/standby_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"
#include "common/pipe.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a standby process gets the environment and the descriptors that its agent sends once it is ready") {
  const auto sockets = make_standby_sockets();
  CHECK_FALSE(take_ready_report(sockets.agent.get()));
  report_ready(sockets.process.get());
  CHECK(take_ready_report(sockets.agent.get()));
  CHECK_FALSE(take_ready_report(sockets.agent.get()));

  const std::vector<std::string> environment{"RANK=2", "EMPTY=", std::string("LONG=").append(100'000, 'x')};
  const auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  REQUIRE(send_adoption(sockets.agent.get(), environment, {in.reader.get(), out.writer.get(), err.writer.get()}));
  const auto adoption = receive_adoption(sockets.process.get());
  REQUIRE(adoption);
  CHECK(adoption->environment == environment);
  char byte = 0;
  REQUIRE(::write(in.writer.get(), "i", 1) == 1);
  CHECK(::read(adoption->standard[0].get(), &byte, 1) == 1);
  CHECK(byte == 'i');
  REQUIRE(::write(adoption->standard[1].get(), "o", 1) == 1);
  CHECK(::read(out.reader.get(), &byte, 1) == 1);
  CHECK(byte == 'o');
  REQUIRE(::write(adoption->standard[2].get(), "e", 1) == 1);
  CHECK(::read(err.reader.get(), &byte, 1) == 1);
  CHECK(byte == 'e');
}

TEST_CASE("a standby process is told of its agent's end, whether the agent has read its report or not") {
  const bool is_read = GENERATE(true, false);
  auto sockets = make_standby_sockets();
  report_ready(sockets.process.get());
  if (is_read) CHECK(take_ready_report(sockets.agent.get()));
  sockets.agent.reset();
  CHECK_FALSE(receive_adoption(sockets.process.get()));
}

TEST_CASE("an adoption that cannot be sent is reported, and does not wait") {
  auto sockets = make_standby_sockets();
  const std::vector<std::string> too_large{std::string("LARGE=").append(64 << 20, 'x')};
  CHECK_FALSE(send_adoption(sockets.agent.get(), too_large, {0, 1, 2}));
  const std::vector<std::string> environment{"RANK=0"};
  CHECK_FALSE(send_adoption(sockets.agent.get(), environment, {-1, 1, 2}));
  sockets.process.reset();
  CHECK_FALSE(send_adoption(sockets.agent.get(), environment, {0, 1, 2}));
}

TEST_CASE("a message without descriptors is an error, not an end") {
  const auto sockets = make_standby_sockets();
  REQUIRE(::send(sockets.agent.get(), "RANK=0", 7, 0) == 7);
  CHECK_THROWS_AS(receive_adoption(sockets.process.get()), Error);
}
