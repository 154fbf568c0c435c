#include "ddprun/worker/comm/bootstrap/group_config.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

const GroupOptions usual{.rank = 0, .size = 2};

template <class Change>
std::optional<std::string> difference_by(Change change, const std::string& backend = "gloo") {
  auto options = usual;
  options.rank = 1;
  change(options);
  return describe_mismatch({"rank 0", config_text("gloo", usual)}, {"rank 1", config_text(backend, options)});
}

}  // namespace

TEST_CASE("ranks that ask for different groups are told who asks for what") {
  CHECK(difference_by([](auto&) {}, "shm") == "rank 0 asks for back end gloo, rank 1 for back end shm");
  CHECK(difference_by([](auto& o) { o.size = 3; }) == "rank 0 asks for size 2, rank 1 for size 3");
  CHECK(difference_by([](auto& o) { o.config.freeze_bound = 0ms; }) ==
        "rank 0 asks for freeze_bound 5000 ms, rank 1 for freeze_bound 0 ms");
  CHECK(difference_by([](auto& o) { o.config.heartbeat = 20ms; }) ==
        "rank 0 asks for heartbeat 1000 ms (unless given, by timeout), rank 1 for heartbeat 20 ms (unless given, by "
        "timeout)");
  CHECK(difference_by([](auto& o) { o.config.staging_bytes = 4096; }) ==
        "rank 0 asks for staging_bytes 262144, rank 1 for staging_bytes 4096");
  CHECK(describe_mismatch({"a", config_text("gloo", {.config = {.checked = true}})},
                          {"b", config_text("gloo", {.config = {.checked = false}})}) ==
        "a asks for checked calls, b for unchecked calls");
}

TEST_CASE("ranks may differ in what concerns nobody else") {
  CHECK_FALSE(difference_by([](auto& o) {
    o.prefix = "another/";
    o.config.timeout = 60s;
    o.config.local_address = "10.0.0.2";
    o.config.host = "b";
    o.store_host = 0;
    o.beside_store = true;
    o.config.concurrency = 1;
  }));
}

TEST_CASE("terms of another length differ, whichever of the two is longer") {
  CHECK(describe_mismatch({"a", "x"}, {"b", "x; y"}) == "a asks for nothing more, b for y");
  CHECK(describe_mismatch({"a", "x; y"}, {"b", ""}) == "a asks for x, b for nothing more");
}

TEST_CASE("who asks for what survives its text") {
  const ConfigClaim claim{"rank 3 (pid 42 on host b)", config_text("auto", usual)};
  CHECK(decode_claim(encode(claim)) == claim);
  CHECK(decode_claim("") == ConfigClaim{});
}
