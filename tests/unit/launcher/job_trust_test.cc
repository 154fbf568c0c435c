#include "launcher/cluster/job_trust.h"

#include <fstream>
#include <sys/stat.h>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using ddprun::testing::TempDir;
using Options = std::vector<std::pair<std::string, std::string>>;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

const std::string digits(64, 'c');

JobTrust trust(const Options& options, const TokenSources& sources = {}, const Variables& variables = {}) {
  LaunchSettings settings;
  for (const auto& [name, value] : options) settings.assign_from_command_line(name, value);
  const Environment environment(variables);
  return choose_trust(choose_rendezvous(settings, environment), settings.options().require_auth, environment, sources);
}

std::string refusal(const Options& options, const TokenSources& sources = {}) {
  try {
    trust(options, sources);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "";
}

std::string token_file(const TempDir& folder) {
  const auto file = (folder / "token").string();
  std::ofstream(file) << digits << '\n';
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
  return file;
}

std::string hex_of(const JobTrust& trust) {
  return std::string(SecretText::hex_of(trust.credentials->token()).view());
}

const Options far{{"nnodes", "2"}, {"rdzv_endpoint", "10.0.0.1:29400"}};

Options with(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace

TEST_CASE("a job of one host admits its user alone and needs no token") {
  for (const auto& options :
       {Options{}, Options{{"nnodes", "2"}}, Options{{"nnodes", "2"}, {"rdzv_endpoint", "localhost:29400"}},
        Options{{"require_auth", "true"}}}) {
    const auto chosen = trust(options);
    REQUIRE(chosen.admission);
    CHECK_FALSE(chosen.admission->credentials);
    CHECK_FALSE(chosen.credentials);
    CHECK(chosen.notice.empty());
  }
}

TEST_CASE("a job of several hosts without a token says so in one line, and is refused where that is required") {
  const auto chosen = trust(far);
  CHECK_FALSE(chosen.admission);
  CHECK(chosen.notice.find("token_file=FILE") != std::string::npos);
  CHECK(chosen.notice.find('\n') == std::string::npos);
  CHECK(refusal(with(far, {{"require_auth", "true"}})).find("--require_auth") != std::string::npos);
}

TEST_CASE("a token comes from a file or from the starter, and never stands in a line") {
  const TempDir folder;
  const auto conf = "token_file=" + token_file(folder);
  const auto from_file = trust(with(far, {{"rdzv_conf", conf}, {"require_auth", "true"}}));
  CHECK(hex_of(from_file) == digits);
  CHECK(from_file.credentials->transport() == Credentials::Transport::tls);
  CHECK(from_file.admission->credentials == from_file.credentials);
  CHECK(from_file.notice.empty());
  const auto clear = trust(with(far, {{"rdzv_conf", conf + ",tls=off"}}));
  CHECK(clear.credentials->transport() == Credentials::Transport::clear);
  std::string text(64, 'd');
  const SecretText sent(text);
  CHECK(hex_of(trust(far, {.from_starter = &sent})) == std::string(64, 'd'));
  CHECK(trust(with(far, {{"rdzv_conf", "auth=off"}}), {.from_starter = &sent}).notice.find("auth=off") !=
        std::string::npos);
}

// The kubelet mounts a Secret's file behind two symbolic links, with the mode that the manifest names.
TEST_CASE("the pods of a Kubernetes job find the token in a mounted Secret") {
  const TempDir folder;
  const auto file = token_file(folder);
  REQUIRE(::chmod(file.c_str(), 0400) == 0);
  const auto mounted = (folder / "mounted").string();
  std::filesystem::create_symlink(file, mounted);
  const Variables variables{{"DDPRUN_K8S_TOKEN_FILE", mounted}};
  const auto chosen = trust(with(far, {{"require_auth", "true"}}), {}, variables);
  CHECK(hex_of(chosen) == digits);
  CHECK(chosen.notice.empty());
  CHECK_FALSE(trust({}, {}, variables).credentials);  // one pod alone
  CHECK_THROWS_WITH(trust(far, {}, {{"DDPRUN_K8S_TOKEN_FILE", (folder / "none").string()}}),
                    Catch::Contains("token file " + (folder / "none").string()));
}

TEST_CASE("a token file that others may read is refused") {
  const TempDir folder;
  const auto file = token_file(folder);
  REQUIRE(::chmod(file.c_str(), 0644) == 0);
  const auto text = refusal(with(far, {{"rdzv_conf", "token_file=" + file}}));
  CHECK(text.find("chmod 600") != std::string::npos);
  CHECK(text.find(digits) == std::string::npos);
}

TEST_CASE("static and etcd cannot be authenticated where that is required") {
  const TempDir folder;
  const Options address{{"nnodes", "2"}, {"node_rank", "0"}, {"master_addr", "10.0.0.1"}};
  CHECK(trust(address).notice.find("static") != std::string::npos);
  CHECK(refusal(with(address, {{"require_auth", "true"}})).find("static") != std::string::npos);
  CHECK(refusal(with(address, {{"rdzv_conf", "token_file=" + token_file(folder)}})).find("c10d") != std::string::npos);
  const Options etcd{{"nnodes", "2"}, {"rdzv_backend", "etcd"}, {"rdzv_endpoint", "10.0.0.1"}};
  CHECK(refusal(with(etcd, {{"require_auth", "true"}})).find("etcd") != std::string::npos);
}

TEST_CASE("the store of the workers admits processes of the job where the agents know them") {
  using Clients = Admission::Clients;
  const TempDir folder;
  const auto known = with(far, {{"rdzv_conf", "token_file=" + token_file(folder)}});
  for (const auto& options : {Options{}, Options{{"standalone", "true"}}, known}) {
    CHECK(trust(options).workers->clients == Clients::of_job);
    CHECK(trust(options).admission->clients == Clients::of_user);
  }
  CHECK(trust({{"nnodes", "2"}}).workers->clients == Clients::of_user);  // there are agents on one host without a token
  CHECK(trust({{"rdzv_conf", "plain_clients=user"}}).workers->clients == Clients::of_user);
  CHECK_FALSE(trust(far).workers);
  CHECK(refusal({{"rdzv_conf", "plain_clients=all"}}).find("job or user") != std::string::npos);
}

TEST_CASE("settings of authentication are checked") {
  CHECK(refusal(with(far, {{"rdzv_conf", "tls=maybe"}})).find("on or off") != std::string::npos);
  CHECK(refusal(with(far, {{"rdzv_conf", "auth=off,token_file=/x"}})).find("contradict") != std::string::npos);
  CHECK(refusal(with(far, {{"rdzv_conf", "token_file=/nonexistent"}})).find("No such file") != std::string::npos);
}

TEST_CASE("the nodes of a Slurm job find the token in the file that the first has made") {
  const TempDir home;
  const Variables variables{{"HOME", home.path().string()}};
  const auto node = [](int rank) {
    return TokenSources{.cluster = ClusterInfo{.nodes = 2, .node_rank = rank, .id = "slurm-42.0"}};
  };
  const auto file = home / ".ddprun" / "slurm-42.0.0.token";
  {
    const auto first = trust(far, node(0), variables);
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
    const auto second = trust(far, node(1), variables);
    CHECK(hex_of(first) == hex_of(second));
    CHECK_FALSE(second.file);
  }
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a token file of Slurm belongs to one job step of one cluster") {
  const TempDir home;
  const auto first_node_of = [](const std::string& id) {
    return TokenSources{.cluster = ClusterInfo{.nodes = 2, .node_rank = 0, .id = id}};
  };
  const Variables variables{{"HOME", home.path().string()}};
  const auto step = trust(far, first_node_of("slurm-42.0"), variables);
  const auto other_step = trust(far, first_node_of("slurm-42.1"), variables);
  auto restarted_variables = variables;
  restarted_variables["SLURM_RESTART_COUNT"] = "1";
  const auto restarted = trust(far, first_node_of("slurm-42.0"), restarted_variables);
  auto elsewhere = variables;
  elsewhere["SLURM_CLUSTER_NAME"] = "b";
  const auto other_cluster = trust(far, first_node_of("slurm-42.0"), elsewhere);
  const auto folder = home / ".ddprun";
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 4);
  for (const auto* other : {&other_step, &restarted, &other_cluster}) CHECK(hex_of(step) != hex_of(*other));

  SECTION("what runs outside of steps has no such file") {
    CHECK_FALSE(trust(far, first_node_of("slurm-42"), variables).credentials);
    CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 4);
  }
  SECTION("it can be removed before its owner ends") {
    step.file->remove();
    CHECK_FALSE(std::filesystem::exists(folder / "slurm-42.0.0.token"));
    CHECK(std::filesystem::exists(folder / "slurm-42.1.0.token"));
  }
  SECTION("one that a killed agent has left is used and removed") {
    {
      const auto next = trust(far, first_node_of("slurm-42.0"), variables);
      CHECK(hex_of(next) == hex_of(step));
    }
    CHECK_FALSE(std::filesystem::exists(folder / "slurm-42.0.0.token"));
  }
}

TEST_CASE("a Slurm job whose home cannot be written runs without a token and says so") {
  const TokenSources first{.cluster = ClusterInfo{.nodes = 2, .node_rank = 0, .id = "slurm-42.0"}};
  const auto chosen = trust(far, first, {{"HOME", "/proc/none"}});
  CHECK_FALSE(chosen.credentials);
  CHECK(chosen.notice.find("/proc/none") != std::string::npos);
}
