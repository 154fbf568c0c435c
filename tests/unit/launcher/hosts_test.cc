#include "common/error.h"
#include "launcher/hosts/host_entries.h"
#include "launcher/hosts/hosts_job.h"
#include "launcher/hosts/remote_protocol.h"
#include "launcher/hosts/ssh_command.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

// Returns text such as "a:4 b c:2".
std::string shown(const std::vector<HostEntry>& hosts) {
  std::string text;
  for (const auto& host : hosts)
    text += (text.empty() ? "" : " ") + host.name + (host.slots ? ":" + std::to_string(*host.slots) : "");
  return text;
}

}  // namespace

TEST_CASE("option --hosts accepts names, slots, users and IPv6 addresses, and adds the slots of a host named twice") {
  CHECK(shown(parse_hosts("a:4,b:2")) == "a:4 b:2");
  CHECK(shown(parse_hosts("b,a")) == "b a");
  CHECK(shown(parse_hosts("me@a:4,10.0.0.7")) == "me@a:4 10.0.0.7");
  CHECK(shown(parse_hosts("[fd00::7]:2,fd00::8")) == "fd00::7:2 fd00::8");
  CHECK(shown(parse_hosts("a:1,b:1,a:2")) == "a:3 b:1");
}

TEST_CASE("an error about --hosts names the entry") {
  CHECK_THROWS_WITH(parse_hosts("a,,b"), "--hosts: '': expected HOST[:SLOTS]");
  CHECK_THROWS_WITH(parse_hosts("a:0"), Catch::StartsWith("--hosts: 'a:0': expected a number of workers from 1"));
  CHECK_THROWS_WITH(parse_hosts("a:x"), Catch::StartsWith("--hosts: 'a:x': expected a number of workers"));
  CHECK_THROWS_WITH(parse_hosts("-oProxyCommand=x"), "--hosts: '-oProxyCommand=x': expected HOST[:SLOTS]");
  CHECK_THROWS_WITH(parse_hosts("[fd00::7"), "--hosts: '[fd00::7': the bracket is not closed");
}

TEST_CASE("a hostfile has Open MPI's lines or HOST:SLOTS, and its errors name file and line") {
  CHECK(shown(parse_hostfile("# two racks\nnode1 slots=4\n\n  node2 slots=4 max_slots=8  # spare\nnode3:2\nnode4\n",
                             "f")) == "node1:4 node2:4 node3:2 node4");
  CHECK_THROWS_WITH(parse_hostfile("a\nb cores=4\n", "f"), "f:2: 'cores=4': expected slots=NUMBER after the host");
  CHECK_THROWS_WITH(parse_hostfile("a slots=many\n", "f"), Catch::StartsWith("f:1: 'slots=many': expected a number"));
  CHECK_THROWS_WITH(parse_hostfile("# nobody\n", "f"), "f: names no hosts");
}

TEST_CASE("only the plain names of this machine need no ssh") {
  CHECK(is_this_machine({.name = "localhost"}, "me"));
  CHECK(is_this_machine({.name = "me"}, "me"));
  CHECK_FALSE(is_this_machine({.name = "me.example.com"}, "me"));
  CHECK_FALSE(is_this_machine({.name = "user@localhost"}, "me"));
  CHECK_FALSE(is_this_machine({.name = "127.0.0.2"}, "me"));
}

TEST_CASE("ssh gets options for no prompts and for dead connections, another program gets none of them") {
  const auto words =
      ssh_command("ssh -p 2222 -o 'User=a b'", {.name = "node1"}, "/opt/it's/ddprun", "--remote_agent=T");
  CHECK(Words(words.begin(), words.begin() + 5) == Words{"ssh", "-p", "2222", "-o", "User=a b"});
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  CHECK(has("BatchMode=yes"));
  CHECK(has("ServerAliveInterval=5"));
  CHECK(words[words.size() - 2] == "node1");
  CHECK(words.back() ==
        "exec /bin/sh -c 'if [ -x \"$0\" ]; then exec \"$0\" \"$@\"; else exec ddprun \"$@\"; fi' "
        "'/opt/it'\\''s/ddprun' --remote_agent=T");
  CHECK(ssh_command("/usr/bin/rsh", {.name = "n"}, "p", "T").size() == 3);
  CHECK_THROWS_WITH(ssh_command("ssh 'x", {.name = "n"}, "p", "T"), "--ssh = ssh 'x: a quote is not closed");
  CHECK_THROWS_AS(ssh_command(" ", {.name = "n"}, "p", "T"), Error);
}

TEST_CASE("variables that configure training are passed to the hosts, others only by name") {
  const Environment environment(Variables{{"NCCL_DEBUG", "INFO"},
                                          {"OMP_NUM_THREADS", "2"},
                                          {"HOME", "/h"},
                                          {"MINE", "a=b"},
                                          {"PET_MAX_RESTARTS", "1"},
                                          {"PET_HOSTS", "a,b"},
                                          {"PYTHONPATH", "/p"}});
  CHECK(environment_for_hosts(environment, "") ==
        Words{"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2", "PET_MAX_RESTARTS=1", "PYTHONPATH=/p"});
  CHECK(environment_for_hosts(environment, "MINE,NCCL_DEBUG=WARN,NEW=") ==
        Words{"MINE=a=b", "NCCL_DEBUG=WARN", "NEW=", "OMP_NUM_THREADS=2", "PET_MAX_RESTARTS=1", "PYTHONPATH=/p"});
  CHECK_THROWS_WITH(environment_for_hosts(environment, "NOT"),
                    "--env: NOT is not set here; --env NOT=VALUE gives it a value");
}

TEST_CASE("a launch request survives a round trip, whatever its texts contain, and an incomplete one is refused") {
  const LaunchRequest request{.directory = "/a b",
                              .environment = {"A=1", "B=two\nlines"},
                              .arguments = {"--x", "", "'\"$\\"},
                              .options = {{"nnodes", "2"}, {"rdzv_conf", ""}},
                              .token = "a token"};
  const auto text = encode(request);
  const auto line = text.find('\n');
  REQUIRE(text.substr(0, line) == std::to_string(text.size() - line - 1));
  const auto back = decode_request(std::string_view(text).substr(line + 1));
  CHECK(back.directory == request.directory);
  CHECK(back.environment == request.environment);
  CHECK(back.arguments == request.arguments);
  CHECK(back.options == request.options);
  CHECK(back.token == request.token);
  for (std::size_t size = 0; size + 1 < text.size() - line; ++size)
    CHECK_THROWS_AS(decode_request(std::string_view(text).substr(line + 1, size)), Error);
}

TEST_CASE("several lines are encoded as one and back") {
  CHECK(join_lines("a\nb\n").find('\n') == std::string::npos);
  CHECK(split_lines(join_lines("a\nb\n")) == "a\nb\n");
}

TEST_CASE("messages are separated from the output wherever the stream is split") {
  const std::string text = "noise\x01 half " + encode_message("tok", "here 1 - -") + "lin" +
                           encode_message("tok", "exit 7") + "e\n" + encode_message("other", "exit 9") + "\x01to";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    MessageParser stream("tok");
    std::string output;
    Words messages;
    stream.feed(std::string_view(text).substr(0, cut), output, messages);
    stream.feed(std::string_view(text).substr(cut), output, messages);
    stream.flush(output);
    REQUIRE(messages == Words{"here 1 - -", "exit 7"});
    REQUIRE(output == "noise\x01 half line\n" + encode_message("other", "exit 9") + "\x01to");
  }
}

TEST_CASE("a launch request has the options of its host, which override the arguments") {
  HostsOptions hosts;
  LaunchSettings settings;
  hosts.add_to(settings);
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"hosts", "a:4,b"}, {"rdzv_conf", "join_timeout=5"}, {"max_restarts", "2"}})
    settings.assign_from_command_line(name, value);
  const auto spec =
      make_hosts_job_spec(settings, hosts, Environment(Variables{}), {"--hosts=a:4,b", "x"}, "/bin/ddprun", "1");
  using Options = std::vector<std::pair<std::string, std::string>>;
  CHECK(request_for(spec, {.host = 0, .endpoint = "10.0.0.1:0", .serves = true}).options ==
        Options{{"nnodes", "2"},
                {"node_rank", "0"},
                {"rdzv_backend", "c10d"},
                {"rdzv_endpoint", "10.0.0.1:0"},
                {"rdzv_conf", "join_timeout=5,is_host=true"},
                {"nproc_per_node", "4"}});
  const auto second = request_for(spec, {.host = 1, .endpoint = "10.0.0.1:77", .served_elsewhere = true});
  CHECK(second.options.back() == std::pair<std::string, std::string>{"rdzv_conf", "join_timeout=5,is_host=false"});
  CHECK(second.arguments == Words{"--hosts=a:4,b", "x"});
}

TEST_CASE("options that cannot be combined with hosts are refused") {
  const auto refused = [](const std::vector<std::pair<std::string, std::string>>& options) {
    HostsOptions hosts;
    LaunchSettings settings;
    hosts.add_to(settings);
    settings.assign_from_command_line("hosts", "a,b");
    for (const auto& [name, value] : options) settings.assign_from_command_line(name, value);
    return make_hosts_job_spec(settings, hosts, Environment(Variables{}), {}, "p", "1");
  };
  CHECK_THROWS_WITH(refused({{"node_rank", "1"}}), "--node_rank is for one node: it cannot be combined with --hosts");
  CHECK_THROWS_WITH(refused({{"standalone", "true"}}),
                    "--standalone is for one node: it cannot be combined with --hosts");
  CHECK_THROWS_WITH(refused({{"stdin", "0"}}), "--stdin = 0: workers that --hosts starts have no standard input");
  CHECK_THROWS_WITH(refused({{"nnodes", "3"}}), "--nnodes = 3: expected at most the number of hosts, 2");
  CHECK_THROWS_WITH(refused({{"hostfile", "f"}}), "--hosts and --hostfile exclude each other");
  CHECK_THROWS_WITH(refused({{"rdzv_backend", "static"}}),
                    "--hosts with --rdzv_backend=static needs an --rdzv_endpoint");
}
