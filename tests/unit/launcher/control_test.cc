#include <algorithm>
#include <fstream>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "launcher/control/agent_record.h"
#include "launcher/control/control_command.h"
#include "launcher/control/control_socket.h"
#include "launcher/control/runtime_folder.h"
#include "launcher/control/status_text.h"
#include "tests/support/as_user.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

JobStatus example() {
  JobStatus job{.run_id = "none",
                .program = "train.cfg",
                .phase = "running",
                .generation = 1,
                .restarts_used = 1,
                .max_restarts = 3,
                .min_nodes = 1,
                .max_nodes = 4,
                .world_size = 2,
                .node_count = 2,
                .since = 123s};
  using State = WorkerReport::State;
  job.nodes = {{.host = "a",
                .address = "10.0.0.1",
                .state = "member",
                .group_rank = 0,
                .first_rank = 0,
                .nproc = 2,
                .since = 3840s,
                .workers = {{{.local_rank = 0, .pid = 4711}, 123s},
                            {{.local_rank = 1, .pid = 4712, .state = State::ended, .signal_number = 9}, 4s}}},
               {.host = "c", .state = "spare", .since = 12s, .heard = 4s},
               {.host = "d", .state = "spare", .since = 11s, .warm = true}};
  return job;
}

}  // namespace

TEST_CASE("the text of a job's status") {
  CHECK(status_text(example()) ==
        "the job (train.cfg): running for 2 min 03 s, generation 1, 1 of 3 restarts used, 1 of 1:4 nodes, 2 workers\n"
        "  node 0  host a (10.0.0.1), ranks 0-1, joined 1 h 04 min ago\n"
        "    rank 0  pid 4711  running for 2 min 03 s\n"
        "    rank 1  pid 4712  ended by SIGKILL 4 s ago\n"
        "  spare   host c, joined 12 s ago, last heartbeat 4 s ago\n"
        "  spare   host d, warm, joined 11 s ago\n");
}

TEST_CASE("the status of a job that trains says how far it is") {
  auto job = example();
  auto& training = job.nodes[0].workers[0].now.training.emplace();
  training = {
      .step = 120, .total_steps = 630, .epoch = 2, .loss = 0.321, .samples_per_s = 12345.4, .seconds_left = 125.2};
  const auto line = [&] {
    const auto text = status_text(job);
    const auto begin = text.find("  training: ");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(line() == "  training: step 120 of 630, epoch 2, loss 0.3210, 12345 samples/s, 2 min 05 s left");
  training.loss = training.samples_per_s = training.seconds_left = std::numeric_limits<double>::quiet_NaN();
  training.epoch = 0;
  CHECK(line() == "  training: step 120 of 630");
}

TEST_CASE("an agent record survives a round trip through JSON, and invalid text is refused") {
  const AgentRecord record{.pid = 17, .endpoint = "127.0.0.1:400", .grace = 7s, .relays = true, .own = example()};
  const auto again = parse_agent_record(to_json(record));
  CHECK(to_json(again) == to_json(record));
  CHECK(again.grace == 7s);
  CHECK(again.relays);
  auto text = to_json(record);
  const std::string relays = ",\"relays\":true";
  text.erase(text.find(relays), relays.size());
  CHECK_FALSE(parse_agent_record(text).relays);  // of an older agent
  CHECK(again.own.nodes.size() == 3);
  CHECK(again.own.nodes.at(2).warm);
  CHECK_THROWS_AS(parse_agent_record("{}"), Error);
  CHECK_THROWS_AS(parse_agent_record("no"), Error);
}

TEST_CASE("the runtime folder belongs to its owner alone, and sockets of dead processes are removed from it") {
  const testing::TempDir base;
  const Environment environment({{"XDG_RUNTIME_DIR", base.path().string()}});
  const auto folder = own_runtime_folder(environment);
  REQUIRE(folder == base / "ddprun");
  struct stat info {};
  REQUIRE(::stat(folder.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);

  CHECK(runtime_folders(environment).size() > 1);
  CHECK(runtime_folders(Environment({{"XDG_RUNTIME_DIR", base.path().string()}, {"DDPRUN_RUNTIME_DIR", "/only"}})) ==
        std::vector<std::filesystem::path>{"/only"});

  const auto own = folder / own_socket_name();
  const auto name_end = own.filename().string().substr(std::to_string(::getpid()).size());
  // The process id is larger than the largest one; another namespace may know it.
  const auto dead = folder / ("4194305" + name_end), elsewhere = folder / "4194305-1.sock",
             other = folder / "other.sock";
  for (const auto& file : {own, dead, elsewhere, other}) std::ofstream(file).put('\n');
  auto expected = std::vector{own, elsewhere};
  std::sort(expected.begin(), expected.end());
  CHECK(agent_sockets(folder) == expected);
  CHECK_FALSE(std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(other));

  std::filesystem::permissions(folder, std::filesystem::perms::all);
  CHECK(agent_sockets(folder).empty());  // others could have put the sockets there
  CHECK(own_runtime_folder(environment) != folder);
}

TEST_CASE("an agent's socket answers its user, and nobody else who can reach it") {
  if (::geteuid() != 0) SKIP("it takes root to act as another user");
  constexpr uid_t agent_user = 65532, other_user = 65533;
  const testing::TempDir base;
  REQUIRE(::chown(base.path().c_str(), agent_user, agent_user) == 0);
  const Environment environment({{"DDPRUN_RUNTIME_DIR", (base / "run").string()}});
  boost::asio::io_context loop;
  int attached = 0;
  std::optional<ControlSocket> made;
  {
    const testing::AsUser agent(agent_user);
    made.emplace(loop, environment,
                 ControlSocket::Handlers{
                     .status = [] { return std::string("here"); },
                     .view = {},
                     .stop = {},
                     .signal = [&](int, int, const std::string&,
                                   const auto& reply) { boost::asio::post(loop, [reply] { reply("sent"); }); },
                     .attach = [&](int rank, const UniqueFd&) { attached = rank; }});
  }
  const auto& control = *made;
  REQUIRE_FALSE(control.path().empty());
  for (const auto& path : {base.path(), base / "run", control.path()}) REQUIRE(::chmod(path.c_str(), 0777) == 0);
  const auto answer_to = [&](uid_t user, const std::string& request = "status") {
    boost::asio::local::stream_protocol::socket client(loop);
    {
      const testing::AsUser other(user);
      client.connect(control.path().string());
    }
    const testing::AsUser agent(agent_user);
    boost::asio::write(client, boost::asio::buffer(request + "\n"));
    std::string answer;
    boost::asio::async_read(client, boost::asio::dynamic_buffer(answer),
                            [&](boost::system::error_code, std::size_t) { loop.stop(); });
    loop.restart();
    loop.run();
    return answer;
  };
  CHECK(answer_to(agent_user) == "here\n");
  CHECK(answer_to(0) == "here\n");
  CHECK(answer_to(agent_user, "signal 3 15 somebody") == "sent\n");
  answer_to(agent_user, "attach 7");
  CHECK(attached == 7);
  CHECK(answer_to(other_user).empty());
  CHECK(answer_to(other_user, "signal 3 15 somebody").empty());
  answer_to(other_user, "attach 8");
  CHECK(attached == 7);
}

TEST_CASE("where another user has made the folder in /tmp, agents use another one, which status finds") {
  if (::geteuid() != 0) SKIP("it takes root to act as another user");
  const auto user = static_cast<uid_t>(100'000 + ::getpid());  // no other user's
  const auto taken = std::filesystem::path("/tmp/ddprun-" + std::to_string(user));
  REQUIRE(::mkdir(taken.c_str(), 0700) == 0);
  std::filesystem::path folder, again;
  std::vector<std::filesystem::path> folders;
  {
    const testing::AsUser other(user);
    folder = own_runtime_folder({});
    again = own_runtime_folder({});
    folders = runtime_folders({});
  }
  std::filesystem::remove(taken);
  std::filesystem::remove(folder);
  CHECK(folder.string().starts_with(taken.string() + "."));
  CHECK(again == folder);
  CHECK(std::count(folders.begin(), folders.end(), folder) == 1);
}

TEST_CASE("a DDPRUN_RUNTIME_DIR that cannot be used is refused with the reason") {
  const testing::TempDir base;
  const Environment environment({{"DDPRUN_RUNTIME_DIR", base.path().string()}});
  CHECK_NOTHROW(check_runtime_folder(environment));
  CHECK_NOTHROW(check_runtime_folder(Environment({{"DDPRUN_RUNTIME_DIR", (base / "missing").string()}})));
  CHECK(own_runtime_folder(environment) == base.path());
  std::string reason = ": other users may enter it (its mode is 755, not 700)";
  std::filesystem::permissions(base.path(), std::filesystem::perms(0755));
  if (::geteuid() == 0) {
    REQUIRE(::chown(base.path().c_str(), 1, 1) == 0);
    reason = ": it belongs to another user (uid 1)";
  }
  CHECK_THROWS_WITH(own_runtime_folder(environment), base.path().string() + reason);
  CHECK_THROWS_WITH(check_runtime_folder(environment),
                    "DDPRUN_RUNTIME_DIR = " + base.path().string() + reason + "; no agent uses it");
}

TEST_CASE("a record with a host name that is not UTF-8 is JSON") {
  auto job = example();
  job.nodes[0].host = "h\xff";
  const AgentRecord record{.pid = 17, .endpoint = "127.0.0.1:400", .grace = 7s, .own = job};
  CHECK(parse_agent_record(to_json(record)).own.nodes[0].host == "h\\xff");
}

TEST_CASE("status and stop are subcommands only as the first argument") {
  CHECK(is_control_command({"status"}));
  CHECK(is_control_command({"stop", "--rdzv_id=x"}));
  CHECK_FALSE(is_control_command({"./status"}));
  CHECK_FALSE(is_control_command({"--nproc_per_node=2", "status"}));
  CHECK_FALSE(is_control_command({}));
  CHECK_THROWS_WITH(run_control_command({"status", "train.py"}, {}), Catch::Contains("./status"));
  CHECK_THROWS_WITH(run_control_command({"status", "--rdzv_endpiont=a"}, {}), Catch::Contains("did you mean"));
}
