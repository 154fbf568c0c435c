#include "worker/comm/bootstrap/group_config.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

const GroupOptions usual{.rank = 0, .size = 2};

template <class Change>
std::optional<std::string> mismatch_by(Change change, const std::string& backend = "gloo") {
  auto options = usual;
  options.rank = 1;
  change(options);
  return describe_mismatch({"rank 0", group_config("gloo", usual)}, {"rank 1", group_config(backend, options)});
}

}  // namespace

TEST_CASE("a mismatch names the field and both ranks' values") {
  CHECK(mismatch_by([](auto&) {}, "shm") == "rank 0 asks for back end gloo, rank 1 for back end shm");
  CHECK(mismatch_by([](auto& o) { o.size = 3; }) == "rank 0 asks for size 2, rank 1 for size 3");
  CHECK(mismatch_by([](auto& o) { o.config.freeze_bound = 0ms; }) ==
        "rank 0 asks for freeze_bound 5000 ms, rank 1 for freeze_bound 0 ms");
  CHECK(mismatch_by([](auto& o) { o.config.heartbeat = 20ms; }) ==
        "rank 0 asks for heartbeat 1000 ms (derived from timeout and freeze_bound unless set), rank 1 for heartbeat 20 "
        "ms (derived from timeout and freeze_bound unless set)");
  CHECK(mismatch_by([](auto& o) { o.config.staging_bytes = 4096; }) ==
        "rank 0 asks for staging_bytes 1048576, rank 1 for staging_bytes 4096");
  CHECK(describe_mismatch({"a", group_config("gloo", {.config = {.checked = true}})},
                          {"b", group_config("gloo", {.config = {.checked = false}})}) ==
        "a asks for checked calls, b for unchecked calls");
}

TEST_CASE("ranks may differ in options that concern no other rank") {
  CHECK_FALSE(mismatch_by([](auto& o) {
    o.prefix = "another/";
    o.config.timeout = 60s;
    o.config.local_address = "10.0.0.2";
    o.config.host = "b";
    o.store_host = 0;
    o.beside_store = true;
    o.config.concurrency = 1;
  }));
}

TEST_CASE("a rank's configuration survives encoding") {
  const ConfigClaim claim{"rank 3 (pid 42 on host b)", group_config("auto", usual)};
  CHECK(decode_claim(encode(claim)) == claim);
  CHECK(decode_claim("") == ConfigClaim{"", std::nullopt});
}

TEST_CASE("a configuration with other fields is another version's, and agrees with none") {
  const ConfigClaim own{"rank 0", group_config("gloo", usual)};
  const auto text = encode(own);
  const auto config = text.substr(text.find('\n') + 1);
  for (const auto& line : std::vector<std::string>{
           "", config + " color=red", config.substr(0, config.rfind(' ')), config + " size=2", "x" + config,
           config.substr(0, config.size() - 1) + "x", "backend=gloo size=many", "size", config + " "}) {
    INFO(line);
    const auto other = decode_claim("rank 1\n" + line);
    CHECK_FALSE(other.config);
    const std::string expected = "the configuration of rank 1 cannot be read: it may run another version of ddprun";
    CHECK(describe_mismatch(own, other) == expected);
    CHECK(describe_mismatch(other, own) == expected);
  }
}
