#include "common/host_port.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("host and port in every spelling") {
  CHECK(parse_host_port("node1:29400") == HostPort{"node1", 29400});
  CHECK(parse_host_port("node1") == HostPort{"node1", std::nullopt});
  CHECK(parse_host_port("[fe80::1]:5") == HostPort{"fe80::1", 5});
  CHECK(parse_host_port("[::1]") == HostPort{"::1", std::nullopt});
  CHECK(parse_host_port("::1") == HostPort{"::1", std::nullopt});
  CHECK(parse_host_port(":0") == HostPort{"", 0});
}

TEST_CASE("a bad port is a usage error that repeats the text") {
  for (const auto* text : {"h:65536", "h:", "h:x", "h:1x", "h:-1", "[::1]x", "[::1"}) {
    INFO(text);
    try {
      parse_host_port(text);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Errc::usage);
      CHECK(std::string(e.what()).find(text) != std::string::npos);
    }
  }
}

TEST_CASE("localhost needs no resolver") {
  CHECK(name_to_resolve("localhost") == "127.0.0.1");
  CHECK(name_to_resolve("job.localhost") == "127.0.0.1");
  CHECK(name_to_resolve("localhost.example") == "localhost.example");
  CHECK(name_to_resolve("::1") == "::1");
}

TEST_CASE("IPv6 addresses are printed in brackets") {
  CHECK(format_host_port("fe80::1", 7) == "[fe80::1]:7");
  CHECK(format_host_port("10.0.0.1", 7) == "10.0.0.1:7");
}

TEST_CASE("a loopback address is recognised in every spelling") {
  CHECK(is_loopback_address("127.0.0.1"));
  CHECK(is_loopback_address("127.3.2.1"));
  CHECK(is_loopback_address("::1"));
  CHECK(is_loopback_address("::ffff:127.0.0.1"));
  CHECK_FALSE(is_loopback_address("10.127.0.1"));
  CHECK_FALSE(is_loopback_address("fe80::1"));
}
