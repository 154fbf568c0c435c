#include "launcher/dashboard/http_rules.h"

#include "common/error.h"
#include "launcher/dashboard/job_watch.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::dashboard;

TEST_CASE("a server on the loopback interface has its names, and no other") {
  const HostRule rule("127.0.0.1", 8000, "node1");
  for (const auto* host : {"127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"})
    CHECK(rule.allows(host));
  for (const auto* host : {"evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "node1:8000", "10.0.0.1:8000", "",
                           "localhost:8000.evil.example"}) {
    CAPTURE(host);
    CHECK_FALSE(rule.allows(host));
  }
}

TEST_CASE("a server on another interface has its address and the name of its host") {
  const HostRule rule("10.0.0.1", 80, "Node1");
  CHECK(rule.allows("10.0.0.1:80"));
  CHECK(rule.allows("node1:80"));
  CHECK_FALSE(rule.allows("localhost:80"));
  CHECK_FALSE(rule.allows("10.0.0.2:80"));
}

TEST_CASE("a browser leaves out port 80") {
  const HostRule rule("10.0.0.1", 80, "node1");
  for (const auto* host : {"10.0.0.1", "node1", "NODE1"}) {
    CAPTURE(host);
    CHECK(rule.allows(host));
  }
  for (const auto* host : {"10.0.0.1:8000", "evil.example", "node1.evil.example", "node1:"}) {
    CAPTURE(host);
    CHECK_FALSE(rule.allows(host));
  }
  const HostRule other("10.0.0.1", 8000, "node1");
  CHECK_FALSE(other.allows("10.0.0.1"));
  CHECK_FALSE(other.allows("node1"));
}

TEST_CASE("an IPv6 address stands in brackets, and may be written in any way") {
  const HostRule rule("fd00::A", 8000, "node1");
  for (const auto* host : {"[fd00::a]:8000", "[FD00::A]:8000", "[fd00:0:0:0:0:0:0:a]:8000"}) {
    CAPTURE(host);
    CHECK(rule.allows(host));
  }
  for (const auto* host :
       {"fd00::a:8000", "fd00::a", "[fd00::a]", "[fd00::b]:8000", "[::1]:8000", "[fd00::a:8000", "[fd00::a]8000"}) {
    CAPTURE(host);
    CHECK_FALSE(rule.allows(host));
  }
  const HostRule standard("::1", 80, "node1");
  CHECK(standard.allows("[::1]"));
  CHECK(standard.allows("localhost"));
  CHECK_FALSE(standard.allows("::1"));
}

TEST_CASE("a server on all interfaces has every address, but no name of another host") {
  const HostRule rule("0.0.0.0", 8000, "node1");
  for (const auto* host : {"10.1.2.3:8000", "[fe80::1]:8000", "localhost:8000", "node1:8000"}) CHECK(rule.allows(host));
  for (const auto* host : {"evil.example:8000", "10.1.2.3:8001", "10.1.2.3", ":8000", "[:8000"}) {
    CAPTURE(host);
    CHECK_FALSE(rule.allows(host));
  }
}

TEST_CASE("a cookie is found by its whole name") {
  CHECK(cookie_value("a=1; ddprun_80=x; b=2", "ddprun_80") == "x");
  CHECK(cookie_value("ddprun_80=", "ddprun_80") == "");
  CHECK_FALSE(cookie_value("xddprun_80=x; ddprun_8=y; ddprun_800=z", "ddprun_80"));
  CHECK_FALSE(cookie_value("", "a"));
  CHECK_FALSE(cookie_value(";;=; ", "a"));
}

TEST_CASE("a bearer token, and texts that are none") {
  CHECK(bearer_token("Bearer abc") == "abc");
  CHECK(bearer_token("bearer  abc ") == "abc");
  CHECK_FALSE(bearer_token("Basic abc"));
  CHECK_FALSE(bearer_token("Bear"));
}

TEST_CASE("the address of a page is a port, or an address with one") {
  CHECK(parse_dashboard_address("0").port == 0);
  CHECK(parse_dashboard_address("8000").address == "127.0.0.1");
  CHECK(parse_dashboard_address("10.0.0.1:80").address == "10.0.0.1");
  CHECK(parse_dashboard_address("[::]:80").address == "::");
  for (const auto* text : {"x", "70000", "10.0.0.1", ":80", ""}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_dashboard_address(text), Error);
  }
}
