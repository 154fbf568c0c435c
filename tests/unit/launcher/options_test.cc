#include "launcher/cli/options.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Environment with(std::map<std::string, std::string, std::less<>> values) {
  return Environment(std::move(values));
}

}  // namespace

TEST_CASE("defaults are torchrun's") {
  const LaunchSettings s;
  CHECK(s.options().nnodes == "1:1");
  CHECK(s.options().nproc_per_node == "1");
  CHECK(s.options().max_restarts == 0);
  CHECK(s.options().monitor_interval == 0.1);
  CHECK(s.options().master_port == 29500);
  CHECK(s.options().shutdown_timeout == 30);
  CHECK(s.options().role == "default");
  CHECK(s.options().rdzv_id == "none");
  CHECK_FALSE(s.is_set("nnodes"));
}

TEST_CASE("precedence is command line, PET_ variable, file, default, in whatever order they are read") {
  LaunchSettings s;
  s.assign_from_command_line("nnodes", "4");
  s.apply_environment(with({{"PET_NNODES", "3"}, {"PET_MAX_RESTARTS", "2"}}));
  s.settings().assign("launch.nnodes", "2", {Origin::file, "t.cfg:1"});
  s.settings().assign("launch.max_restarts", "7", {Origin::file, "t.cfg:2"});
  s.settings().assign("launch.role", "trainer", {Origin::file, "t.cfg:3"});
  CHECK(s.options().nnodes == "4");
  CHECK(s.options().max_restarts == 2);
  CHECK(s.options().role == "trainer");
  CHECK(s.origin("role") == Origin::file);
}

TEST_CASE("flags in the environment are integers, as in torchrun, or words") {
  LaunchSettings s;
  s.apply_environment(with({{"PET_STANDALONE", "2"}, {"PET_NO_PYTHON", "0"}, {"PET_MODULE", "true"}}));
  CHECK(s.options().standalone);
  CHECK_FALSE(s.options().no_python);
  CHECK(s.options().module);
}

TEST_CASE("an empty variable counts as unset") {
  LaunchSettings s;
  s.apply_environment(with({{"PET_MAX_RESTARTS", ""}}));
  CHECK(s.options().max_restarts == 0);
}

TEST_CASE("TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets the grace period, and PET_SHUTDOWN_TIMEOUT overrides it") {
  LaunchSettings s;
  s.apply_environment(with({{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}));
  CHECK(s.options().shutdown_timeout == 7);
  s.apply_environment(with({{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}, {"PET_SHUTDOWN_TIMEOUT", "8"}}));
  CHECK(s.options().shutdown_timeout == 8);
}

TEST_CASE("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE sets the template, and PET_LOG_LINE_PREFIX_TEMPLATE overrides it") {
  LaunchSettings s;
  s.apply_environment(with({{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a"}}));
  CHECK(s.options().log_line_prefix_template == "a");
  s.apply_environment(with({{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a"}, {"PET_LOG_LINE_PREFIX_TEMPLATE", "b"}}));
  CHECK(s.options().log_line_prefix_template == "b");
}

TEST_CASE("TORCH_DISABLE_SHARE_RDZV_TCP_STORE sets --no_agent_store, and PET_NO_AGENT_STORE overrides it") {
  LaunchSettings s;
  s.apply_environment(with({{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0"}}));
  CHECK_FALSE(s.options().no_agent_store);
  s.apply_environment(with({{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}));
  CHECK(s.options().no_agent_store);
  s.apply_environment(with({{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}, {"PET_NO_AGENT_STORE", "0"}}));
  CHECK_FALSE(s.options().no_agent_store);
}

TEST_CASE("bad values name the variable, the value and the bounds") {
  LaunchSettings s;
  CHECK_THROWS_WITH(s.apply_environment(with({{"PET_MAX_RESTARTS", "-1"}})),
                    "PET_MAX_RESTARTS: launch.max_restarts = -1: expected a whole number at least 0");
  CHECK_THROWS_WITH(s.assign_from_command_line("rdzv_backend", "zeus"),
                    "--rdzv_backend: launch.rdzv_backend = zeus: expected one of c10d, static, etcd");
  CHECK_THROWS_WITH(
      s.apply_environment(with({{"PET_NUMA_BINDING", "near"}})),
      "PET_NUMA_BINDING: launch.numa_binding = near: expected one of node, socket, exclusive, core-complex");
}

TEST_CASE("node counts") {
  CHECK(parse_node_count("3").min == 3);
  CHECK(parse_node_count("3").max == 3);
  CHECK(parse_node_count("1:4").min == 1);
  CHECK(parse_node_count("1:4").max == 4);
  for (const char* bad : {"0", "-1", "4:2", "a", "", "1:", ":2", "1:2:3", "0:2", "65537", "1:100000"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_node_count(bad), Error);
  }
}

TEST_CASE("nproc_per_node is a number or a word") {
  CHECK(resolve_nproc("8", {}) == 8);
  CHECK(resolve_nproc("cpu", {}) >= 1);
  CHECK(resolve_nproc("auto", with({{"CUDA_VISIBLE_DEVICES", ""}})) == resolve_nproc("cpu", {}));
  CHECK_THROWS_WITH(resolve_nproc("gpu", with({{"CUDA_VISIBLE_DEVICES", ""}})),
                    "--nproc_per_node = gpu: CUDA is not available: this machine shows no GPU");
  CHECK_THROWS_WITH(resolve_nproc("tpu", {}),
                    "--nproc_per_node = tpu: expected a number from 1 to 4096, cpu, gpu, xpu or auto");
  CHECK_THROWS_AS(resolve_nproc("0", {}), Error);
  CHECK(resolve_nproc("4096", {}) == 4096);
  CHECK_THROWS_AS(resolve_nproc("4097", {}), Error);
}
