#include "launcher/output/stream_spec.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("one digit applies to all local ranks") {
  CHECK(StreamSpec::parse("0", "tee").of(3) == Streams{});
  CHECK(StreamSpec::parse("1", "tee").of(3) == Streams{.out = true});
  CHECK(StreamSpec::parse("2", "tee").of(0) == Streams{.err = true});
  CHECK(StreamSpec::parse("3", "tee").of(12) == Streams{.out = true, .err = true});
  CHECK_FALSE(StreamSpec::parse("0", "tee").any());
}

TEST_CASE("a list names ranks, also of several digits, and the others get none") {
  const auto spec = StreamSpec::parse("0:1,12:3", "redirects");
  CHECK(spec.of(0) == Streams{.out = true});
  CHECK(spec.of(1) == Streams{});
  CHECK(spec.of(12) == Streams{.out = true, .err = true});
  CHECK(spec.any());
}

TEST_CASE("any other text is an error that shows the grammar") {
  for (const char* bad : {"", "4", "-1", "11", "0:4", "0:1,", ",0:1", "0:1, 1:3", "a:1", "0:",
                          "0"
                          ":1:1"}) {
    INFO(bad);
    CHECK_THROWS_AS(StreamSpec::parse(bad, "tee"), Error);
  }
  CHECK_THROWS_WITH(StreamSpec::parse("4", "tee"),
                    "--tee = 4: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:N[,RANK:N...]");
}
