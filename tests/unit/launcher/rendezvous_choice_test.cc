#include "launcher/cluster/rendezvous_choice.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Backend = RendezvousChoice::Backend;
using Options = std::vector<std::pair<std::string, std::string>>;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

RendezvousChoice choose(const Options& options, const Variables& variables = {}) {
  LaunchSettings settings;
  for (const auto& [name, value] : options) settings.assign_from_command_line(name, value);
  const Environment environment(variables);
  settings.apply_environment(environment);
  return choose_rendezvous(settings, environment);
}

}  // namespace

TEST_CASE("one node without an endpoint is a standalone job") {
  CHECK(choose({}).standalone);
  CHECK(choose({{"node_rank", "0"}}).standalone);
  CHECK(choose({}, {{"MASTER_ADDR", "left.over"}}).standalone);
  // As in torchrun, only an endpoint or a master port makes static a rendezvous with others.
  CHECK(choose({{"rdzv_backend", "static"}}).standalone);
  CHECK(choose({{"master_addr", "h"}}).standalone);
  CHECK(choose({{"rdzv_endpoint", ""}}).standalone);
  CHECK_FALSE(choose({{"rdzv_endpoint", "h"}}).standalone);
  CHECK_FALSE(choose({{"master_port", "29500"}}).standalone);
  CHECK_FALSE(choose({}, {{"PET_MASTER_PORT", "29500"}}).standalone);
}

TEST_CASE("a job of several nodes may have spares, one of a single node needs an endpoint for them") {
  CHECK(choose({{"nnodes", "2"}, {"spares", "1"}}).policy.spares == 1);
  CHECK(choose({{"spares", "1"}, {"rdzv_endpoint", "h"}}).policy.spares == 1);
  CHECK(choose({{"spares", "1"}, {"standalone", "true"}}).policy.spares == 0);
  CHECK_THROWS_WITH(choose({{"spares", "1"}}),
                    Catch::Contains("--spares = 1: a job of one node needs --rdzv_endpoint"));
}

TEST_CASE("standalone ignores explicit values") {
  const auto choice =
      choose({{"standalone", "true"}, {"nnodes", "4"}, {"rdzv_endpoint", "h:1"}, {"rdzv_backend", "static"}});
  CHECK(choice.standalone);
  CHECK(choice.policy.max_nodes == 1);
}

TEST_CASE("several nodes without an endpoint use this machine, and a notice says so") {
  const auto choice = choose({{"nnodes", "2"}});
  CHECK_FALSE(choice.standalone);
  CHECK(choice.backend == Backend::c10d);
  CHECK(choice.host == "127.0.0.1");
  CHECK(choice.port == 29400);
  CHECK(choice.notice ==
        "waiting at 127.0.0.1:29400 for 2 nodes, all on this machine; for nodes on other machines start each with "
        "--rdzv_endpoint=HOST:PORT");
}

TEST_CASE("a pod of an indexed Job without the manifest's variables is alone, and a notice says so unless --nnodes=1") {
  const Variables pod = {{"JOB_COMPLETION_INDEX", "1"}};
  CHECK_THAT(choose({}, pod).notice, Catch::Contains("is a separate job") && Catch::Contains("--nnodes=1"));
  CHECK(choose({}, pod).standalone);
  CHECK(choose({{"nnodes", "1"}}, pod).notice.empty());
  CHECK(choose({{"standalone", "true"}}, pod).notice.empty());
  CHECK(choose({}, {}).notice.empty());
}

TEST_CASE("an endpoint comes from the option, the master options, or the environment, in this order") {
  CHECK(choose({{"nnodes", "2"}, {"rdzv_endpoint", "h:7"}}, {{"MASTER_ADDR", "e"}}).host == "h");
  CHECK(choose({{"nnodes", "2"}, {"rdzv_endpoint", "h"}}).port == 29400);
  CHECK(choose({{"nnodes", "2"}, {"rdzv_endpoint", "h:7"}}).port == 7);
  CHECK(choose({{"nnodes", "2"}, {"master_addr", "m"}}).host == "m");
  CHECK(choose({{"nnodes", "2"}, {"master_addr", "m"}}).port == 29500);
  const auto from_environment = choose({{"nnodes", "2"}}, {{"MASTER_ADDR", "e"}, {"MASTER_PORT", "99"}});
  CHECK(from_environment.host == "e");
  CHECK(from_environment.port == 99);
  CHECK(from_environment.notice.empty());
  CHECK_THROWS_WITH(choose({{"nnodes", "2"}}, {{"MASTER_ADDR", "e"}, {"MASTER_PORT", "x"}}),
                    "MASTER_PORT = x: expected a port from 1 to 65535");
}

TEST_CASE("a node rank together with an address means static, and PET_ variables count") {
  CHECK(choose({{"nnodes", "2"}, {"node_rank", "1"}, {"master_addr", "m"}}).backend == Backend::static_);
  CHECK(choose({{"nnodes", "2"}, {"node_rank", "1"}, {"rdzv_endpoint", "m:1"}}).backend == Backend::static_);
  const auto operators = choose({}, {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "m"}});
  CHECK(operators.backend == Backend::static_);
  CHECK(operators.node_rank == 1);
  CHECK(operators.port == 29500);
  CHECK(choose({{"nnodes", "2"}, {"node_rank", "1"}}).backend == Backend::c10d);
  CHECK(choose({{"nnodes", "2"}, {"node_rank", "1"}, {"rdzv_endpoint", "m:1"}, {"rdzv_backend", "c10d"}}).backend ==
        Backend::c10d);
}

TEST_CASE("static takes all nodes, and a rank below their number") {
  const auto choice = choose({{"nnodes", "1:3"}, {"rdzv_backend", "static"}});
  CHECK(choice.policy.min_nodes == 3);
  CHECK(choice.node_rank == 0);
  CHECK_THAT(choice.notice, Catch::Contains("--nnodes = 1:3") && Catch::Contains("the job waits for all 3 nodes"));
  CHECK(choose({{"nnodes", "3"}, {"rdzv_backend", "static"}}).notice.empty());
  CHECK_THROWS_WITH(choose({{"nnodes", "2"}, {"rdzv_backend", "static"}, {"node_rank", "2"}}),
                    "--node_rank = 2: expected less than --nnodes = 2");
}

TEST_CASE("TORCH_ELASTIC_WORKER_IDENTICAL is refused in a static job, and nowhere else") {
  const Variables identical{{"TORCH_ELASTIC_WORKER_IDENTICAL", "1"}};
  CHECK_THROWS_WITH(choose({{"nnodes", "2"}, {"rdzv_backend", "static"}}, identical),
                    Catch::Contains("TORCH_ELASTIC_WORKER_IDENTICAL = 1") && Catch::Contains("unset it on every node"));
  CHECK_NOTHROW(choose({{"nnodes", "2"}, {"rdzv_backend", "static"}}, {{"TORCH_ELASTIC_WORKER_IDENTICAL", "0"}}));
  CHECK_NOTHROW(choose({{"nnodes", "2"}}, identical));
  CHECK_NOTHROW(choose({}, identical));
}

TEST_CASE("rdzv_conf sets the policy") {
  const auto choice = choose({{"nnodes", "1:2"},
                              {"rdzv_conf",
                               "last_call_timeout=3,join_timeout=4,keep_alive_interval=2,"
                               "keep_alive_max_attempt=7,is_host=no,close_timeout=1,store_timeout=8"}});
  CHECK(choice.policy.last_call == std::chrono::seconds(3));
  CHECK(choice.policy.join_timeout == std::chrono::seconds(4));
  CHECK(choice.policy.keep_alive_interval == std::chrono::seconds(2));
  CHECK(choice.policy.keep_alive_max_attempt == 7);
  CHECK(choice.is_host == false);
  CHECK(choice.store_timeout == std::chrono::seconds(8));
  CHECK(choose({{"nnodes", "2"}, {"rdzv_backend", "static"}, {"rdzv_conf", "timeout=9"}}).policy.join_timeout ==
        std::chrono::seconds(9));
}

TEST_CASE("errors in rdzv_conf") {
  const auto error = [](const char* text) { return choose({{"nnodes", "2"}, {"rdzv_conf", text}}); };
  CHECK_THROWS_WITH(error("join_timeout"), "--rdzv_conf: 'join_timeout': expected KEY=VALUE");
  CHECK_THROWS_WITH(error("join_timeout="), "--rdzv_conf: 'join_timeout=': expected KEY=VALUE");
  CHECK_THROWS_WITH(error("joint_timeout=3"), "--rdzv_conf: unknown key joint_timeout; did you mean join_timeout?");
  CHECK_THROWS_WITH(error("join_timeout=1.5"),
                    "--rdzv_conf: join_timeout = 1.5: expected a whole number from 1 to 1000000000");
  CHECK_THROWS_WITH(error("join_timeout=0"),
                    "--rdzv_conf: join_timeout = 0: expected a whole number from 1 to 1000000000");
  CHECK_THROWS_WITH(error("keep_alive_interval=86401"),
                    "--rdzv_conf: keep_alive_interval = 86401: expected a whole number from 1 to 86400");
  CHECK_THROWS_WITH(error("keep_alive_max_attempt=10001"),
                    "--rdzv_conf: keep_alive_max_attempt = 10001: expected a whole number from 1 to 10000");
  CHECK_THROWS_WITH(error("store_type=file"),
                    Catch::Contains("store_type = file") && Catch::Contains("--rdzv_endpoint=HOST:PORT"));
  CHECK_THROWS_WITH(error("store_type=udp"), "--rdzv_conf: store_type = udp: expected tcp");
  CHECK_THROWS_WITH(error("is_host=maybe"), "--rdzv_conf: is_host = maybe: expected true or false");
}
