#include "rendezvous/etcd/etcd_json.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "common/error.h"
#include "rendezvous/etcd/job_keys.h"
#include "rendezvous/etcd/job_records.h"
#include "tests/support/catch.h"

using namespace ddprun;
namespace json = boost::json;

TEST_CASE("base64") {
  const std::vector<std::pair<std::string, std::string>> vectors = {// RFC 4648, section 10
                                                                    {"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {std::string("\xff\x00\xfe", 3), "/wD+"}};
  for (const auto& [bytes, text] : vectors) {
    CHECK(base64_encode(bytes) == text);
    CHECK(base64_decode(text) == bytes);
  }
  for (const char* bad : {"Z", "Zg=", "Zg", "Zm9v!AAA", "====", "Z===", "Zg==Zg=="}) {
    INFO(bad);
    CHECK(!base64_decode(bad));
  }
}

TEST_CASE("a transaction is encoded as the gateway expects it") {
  const EtcdTxn txn{
      .compare = {{.target = EtcdCompare::Target::mod, .key = "k", .revision = 7}},
      .success = {{.kind = EtcdOperation::Kind::put, .key = "k", .value = "v", .lease = EtcdOperation::Lease::node}},
      .failure = {{.kind = EtcdOperation::Kind::read, .key = "k"}, {.kind = EtcdOperation::Kind::erase, .key = "k"}}};
  CHECK(txn_request(txn, {.node = 1234567890123456789}) == json::parse(R"({
    "compare": [{"result": "EQUAL", "target": "MOD", "key": "aw==", "mod_revision": "7"}],
    "success": [{"request_put": {"key": "aw==", "value": "dg==", "lease": "1234567890123456789"}}],
    "failure": [{"request_range": {"key": "aw=="}}, {"request_delete_range": {"key": "aw=="}}]})"));
  CHECK(watch_request("/a/", 5) ==
        json::parse(R"({"create_request": {"key": "L2Ev", "range_end": "L2Ew", "start_revision": "5"}})"));
}

TEST_CASE("responses of the gateway are decoded") {
  const auto txn = read_txn_answer(json::parse(R"({"header": {"revision": "9"}, "responses": [{"response_range":
      {"kvs": [{"key": "aw==", "create_revision": "2", "mod_revision": "3", "value": "dg=="}]}}]})"));
  CHECK(!txn.succeeded);
  CHECK(txn.revision == 9);
  REQUIRE(txn.read.size() == 1);
  CHECK(txn.read[0].key == "k");
  CHECK(txn.read[0].value == "v");
  CHECK(txn.read[0].create_revision == 2);
  CHECK(txn.read[0].mod_revision == 3);
  const auto watch = read_watch_answer(json::parse(R"({"result": {"events": [{"kv": {"key": "aw==", "value": "dg=="}},
      {"type": "DELETE", "kv": {"key": "aw==", "mod_revision": "4"}}]}})"));
  REQUIRE(watch.changes.size() == 2);
  CHECK(!watch.changes[0].erased);
  CHECK(watch.changes[1].erased);
  CHECK(watch.changes[1].entry.mod_revision == 4);
  CHECK(read_watch_answer(json::parse(R"({"result": {"canceled": true, "compact_revision": "4"}})")).canceled);
  CHECK(read_watch_answer(json::parse(R"({"error": {"message": "no leader"}})")).canceled);
  CHECK_THROWS_WITH(read_txn_answer(json::parse("{}")), Catch::Contains("'header'"));
  CHECK_THROWS_WITH(read_range_answer(json::parse(R"({"header": {"revision": "x"}})")), Catch::Contains("'revision'"));
  CHECK_THROWS_WITH(read_range_answer(json::parse(R"({"header": {}, "kvs": [{"key": "?"}]})")),
                    Catch::Contains("'key'"));
}

TEST_CASE("a run id is one component of a key's path") {
  const JobKeys plain("/ddprun/", "a"), sly("/ddprun", "a/nodes%");
  CHECK(plain.leader() == "/ddprun/a/control/leader");
  CHECK(plain.node("x") == "/ddprun/a/nodes/x");
  CHECK(plain.node_of("/ddprun/a/nodes/x") == "x");
  CHECK(plain.node_of("/ddprun/a/state").empty());
  CHECK(sly.all() == "/ddprun/a%2Fnodes%25/");
}

TEST_CASE("a job's records survive encoding and parsing") {
  NodeRecord node{.session = "s",
                  .info = {.id = "n", .host = "h", .address = "10.0.0.1", .nproc = 3, .node_rank = 2},
                  .policy = {.run_id = "r", .program = "p", .min_nodes = 2, .max_nodes = 4, .max_restarts = 1},
                  .addresses = {"1.2.3.4", "5.6.7.8"},
                  .report = NodeRecord::Report::failure,
                  .generation = 5,
                  .failures = {{.rank = 1, .host = "h", .pid = 7, .signal_number = 9, .last_lines = "\xff\n\"x\""}},
                  .sent_us = 99,
                  .liveness_check = 3,
                  .left = "why"};
  const std::string text = to_json(node);
  const NodeRecord again = parse_node_record("k", text);
  CHECK(to_json(again) == text);
  CHECK(again.info.node_rank == 2);
  CHECK(again.failures.at(0).last_lines == "\xff\n\"x\"");
  CHECK(again.left == "why");

  JobAnnouncement announcement{.phase = JobAnnouncement::Phase::ended,
                               .round = {.generation = 4, .members = {{.node_id = "n", .nproc = 2}}, .world_size = 2},
                               .rejected = {{"s", {.lost = true, .text = "t"}}},
                               .result = {.exit_code = 7, .reason = "r"},
                               .recipients = {"n"}};
  CHECK(to_json(parse_job_announcement("k", to_json(announcement))) == to_json(announcement));
  CHECK(parse_job_announcement("k", to_json(announcement)).rejected.at("s").lost);

  JobState state{.writer = "w", .sequence = 8, .sessions = {{"n", "s"}}};
  state.membership.nodes = {{.info = node.info, .arrival = 3, .rank = 1, .member = true}};
  state.membership.last_call_left = std::chrono::milliseconds(5);
  CHECK(to_json(parse_job_state("k", to_json(state))) == to_json(state));
  CHECK(parse_job_state("k", to_json(state)).membership.last_call_left == std::chrono::milliseconds(5));
}

TEST_CASE("the error for an unexpected record names its key and the field") {
  CHECK_THROWS_WITH(
      parse_job_announcement("/ddprun/a/control/announcement", "{}"),
      "etcd's key '/ddprun/a/control/announcement' does not hold what this version of ddprun writes there: "
      "'phase' is missing or not as expected");
  CHECK_THROWS_AS(parse_job_state("k", "torn {"), Error);
  CHECK_THROWS_WITH(parse_node_record("k", R"({"version": 1, "session": 4})"), Catch::Contains("'session'"));
  CHECK(parse_node_record("k", R"({"version": 9, "session": "s", "more": 1})").version == 9);
}
