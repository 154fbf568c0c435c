#include "launcher/agent/preview.h"

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

AgentSpec spec_for(int min_nodes, int max_nodes) {
  AgentSpec spec;
  spec.node = {.id = "", .host = "here", .address = "", .nproc = 2, .node_rank = {}};
  spec.policy.run_id = "job";
  spec.policy.program = "train.py";
  spec.policy.min_nodes = min_nodes;
  spec.policy.max_nodes = max_nodes;
  spec.group.environment.set("HOME", "/h");
  spec.group.environment.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  spec.group.exported.run_id = "job";
  spec.group.exported.omp_threads = {2, 1};
  spec.group.command = {.executable = "/usr/bin/python3", .arguments = {"python3", "-u", "train.py"}, .title = ""};
  spec.log_dir = "/dev/null";
  spec.group.placement = {.binding = Binding::cores,
                          .allowed = {0, 1, 2, 8},
                          .cores = 3,
                          .quota = 2.5,
                          .gpus = 1,
                          .workers = {},
                          .sets_threads = true,
                          .notices = {}};
  spec.group.placement.workers.push_back(
      {.cpus = {0, 1}, .nodes = {0}, .gpu = Gpu{"3", "0000:0a:00.0", 0}, .threads = 2});
  spec.group.placement.workers.push_back({.cpus = {2, 8}, .nodes = {0, 1}, .gpu = {}, .threads = 1});
  return spec;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the whole preview of a job of one node") {
  RendezvousChoice choice;
  choice.standalone = true;
  CHECK(preview(spec_for(1, 1), choice) ==
        R"(a preview of this node, on which 2 workers would run; nothing is started

  job         id job, train.py
  nodes       1
  rendezvous  on a free port of 127.0.0.1, served by this node alone
  cores       3 (CPUs 0-2,8), a quota of 2.5 CPUs; --bind = cores
  GPUs        1

  local rank  rank  host  GPU               CPUs  NUMA nodes  OMP threads
  0           0     here  3 (0000:0a:00.0)  0-1   0           2
  1           1     here  -                 2,8   0,1         1

environment added or changed, all workers:
  GROUP_RANK=0
  GROUP_WORLD_SIZE=1
  LOCAL_WORLD_SIZE=2
  MASTER_ADDR=127.0.0.1
  MASTER_PORT=?
  ROLE_NAME=default
  ROLE_WORLD_SIZE=2
  TORCHELASTIC_ERROR_FILE=?
  TORCHELASTIC_MAX_RESTARTS=0
  TORCHELASTIC_RESTART_COUNT=0
  TORCHELASTIC_RUN_ID=job
  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT
  TORCHELASTIC_USE_AGENT_STORE=True
  WORLD_SIZE=2
worker 0:
  LOCAL_RANK=0
  OMP_NUM_THREADS=2
  RANK=0
  ROLE_RANK=0
worker 1:
  LOCAL_RANK=1
  OMP_NUM_THREADS=1
  RANK=1
  ROLE_RANK=1

command:
  /usr/bin/python3 -u train.py

?: known once the job starts
)");
}

TEST_CASE("values that depend on the other nodes are shown as unknown") {
  RendezvousChoice choice;
  choice.host = "192.0.2.1";  // no host has it (RFC 5737)
  choice.port = 29400;
  const auto elastic = preview(spec_for(2, 4), choice);
  CHECK(contains(elastic, "  nodes       2 to 4\n"));
  CHECK(contains(elastic, "  rendezvous  c10d at 192.0.2.1:29400; another node serves it\n"));
  CHECK(contains(elastic, "\n  0           ?     here"));
  CHECK(contains(elastic, "\n  WORLD_SIZE=?\n"));
  CHECK(contains(elastic, "\n  MASTER_ADDR=?\n"));
  auto with_spares = spec_for(2, 2);
  with_spares.policy.spares = 1;
  CHECK(contains(preview(with_spares, choice), "  nodes       2, and up to 1 that stand by\n"));

  const auto fixed = preview(spec_for(3, 3), choice);
  CHECK(contains(fixed, "\n  RANK=?\n"));
  CHECK(contains(fixed, "\n  WORLD_SIZE=6\n"));
  CHECK(contains(fixed, "ranks and sizes are correct if every node starts 2 workers\n"));
}

TEST_CASE("with static the ranks and the address are known") {
  RendezvousChoice choice;
  choice.backend = RendezvousChoice::Backend::static_;
  choice.host = "192.0.2.1";
  choice.port = 29500;
  choice.node_rank = 2;
  const auto spec = spec_for(3, 3);
  const auto text = preview(spec, choice);
  CHECK(contains(text, "static at 192.0.2.1:29500; node rank 0 serves it\n"));
  CHECK(contains(text, "\n  MASTER_ADDR=192.0.2.1\n"));
  CHECK(contains(text, "\n  MASTER_PORT=29500\n"));
  CHECK(contains(text, "\n  RANK=5\n"));
  choice.node_rank = 0;
  CHECK(contains(preview(spec, choice), "static at 192.0.2.1:29500; this node would serve it\n"));
}
