#include "launcher/cluster/discovery.h"

#include <set>
#include <sstream>

#include "common/error.h"
#include "launcher/cluster/rendezvous_choice.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/slurm_environments.h"

using namespace ddprun;
using namespace ddprun::testing;
using Options = std::vector<std::pair<std::string, std::string>>;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

Environment environment(const std::string& text, const Variables& more = {}) {
  Variables variables = more;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (const auto equals = line.find('='); equals != std::string::npos)
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  return Environment(variables);
}

const Variables pod = {{"JOB_COMPLETION_INDEX", "2"},
                       {"DDPRUN_K8S_JOB", "train"},
                       {"DDPRUN_K8S_SERVICE", "train-nodes"},
                       {"DDPRUN_K8S_COMPLETIONS", "4"}};

const Variables sky_task = {{"SKYPILOT_NODE_RANK", "1"},
                            {"SKYPILOT_NUM_NODES", "2"},
                            {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.5"},
                            {"SKYPILOT_NUM_GPUS_PER_NODE", "4"},
                            {"SKYPILOT_TASK_ID", "sky-2026-11-25-10-00-00-000000_train_3"}};
const Variables dstack_task = {{"DSTACK_NODE_RANK", "0"},
                               {"DSTACK_NODES_NUM", "3"},
                               {"DSTACK_MASTER_NODE_IP", "10.0.0.7"},
                               {"DSTACK_GPUS_PER_NODE", "0"},
                               {"DSTACK_RUN_NAME", "brave-fox-1"}};

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables pod_with(const std::string& name, const std::string& value) {
  auto variables = pod;
  variables[name] = value;
  return variables;
}

// The result for a job with these options in this environment.
struct Outcome {
  RendezvousChoice choice;
  std::string nproc;
  std::string line;  // line for the log; empty if nothing was discovered
};
Outcome outcome(const Environment& variables, const Options& options = {}) {
  LaunchSettings settings;
  for (const auto& [name, value] : options) settings.assign_from_command_line(name, value);
  settings.apply_environment(variables);
  const auto info = apply_cluster(settings, variables);
  return {.choice = choose_rendezvous(settings, variables),
          .nproc = settings.options().nproc_per_node,
          .line = info ? describe(*info, settings) : ""};
}

}  // namespace

TEST_CASE("nothing is discovered without a scheduler") {
  CHECK_FALSE(discover_cluster(Environment(Variables{})));
  CHECK_FALSE(discover_cluster(Environment(Variables{{"SLURM_JOB_ID", "x"}, {"JOB_COMPLETION_INDEX", "3"}})));
  CHECK(outcome(Environment(Variables{})).choice.standalone);
}

TEST_CASE("one ddprun per node of a Slurm step: nodes, rank, endpoint and id") {
  const auto info = discover_slurm(environment(slurm::second_of_two));
  REQUIRE(info);
  CHECK(info->error.empty());
  CHECK(info->nodes == 2);
  CHECK(info->node_rank == 1);
  CHECK(info->host == "n1");
  CHECK(info->port == 16384 + 37);
  CHECK(info->id == "slurm-1.0");
  CHECK_FALSE(info->workers);
}

TEST_CASE("a Slurm step becomes a c10d job whose first node runs the rendezvous server") {
  const auto second = outcome(environment(slurm::second_of_two));
  CHECK_FALSE(second.choice.standalone);
  CHECK(second.choice.backend == RendezvousChoice::Backend::c10d);
  CHECK(second.choice.policy.min_nodes == 2);
  CHECK(second.choice.policy.max_nodes == 2);
  CHECK(second.choice.policy.run_id == "slurm-1.0");
  CHECK(second.choice.host == "n1");
  CHECK(second.choice.port == 16421);
  CHECK(second.choice.node_rank == 1);
  CHECK(second.choice.is_host == false);
  CHECK(second.choice.notice.empty());
  CHECK(second.nproc == "1");
  CHECK(second.line == "Slurm job 1, step 0: node 1 of 2, rendezvous at n1:16421");
  CHECK(outcome(environment(slurm::second_of_two, {{"SLURM_NODEID", "0"}})).choice.is_host == true);
}

TEST_CASE("GPUs that Slurm allotted become workers, unless the number of workers is set") {
  const auto with_gpus = environment(slurm::second_with_gpus);
  CHECK(outcome(with_gpus).nproc == "2");
  CHECK(outcome(with_gpus).line == "Slurm job 3, step 0: node 1 of 2, rendezvous at n1:16495, 2 workers for its GPUs");
  CHECK(outcome(with_gpus, {{"nproc_per_node", "8"}}).nproc == "8");
}

TEST_CASE("consecutive jobs and steps get different ports below the kernel's ephemeral ports") {
  std::set<std::uint16_t> ports;
  for (int job = 70000; job < 70100; ++job)
    for (int step = 0; step < 8; ++step)
      ports.insert(discover_slurm(environment(slurm::second_of_two, {{"SLURM_JOB_ID", std::to_string(job)},
                                                                     {"SLURM_STEP_ID", std::to_string(step)}}))
                       ->port);
  CHECK(ports.size() == 800);
  CHECK(*ports.begin() >= 16384);
  CHECK(*ports.rbegin() < 29400);
}

TEST_CASE("a step on one node of a larger job is a job of one node") {
  CHECK(outcome(environment(slurm::one_node_step)).choice.standalone);
  CHECK(outcome(environment(slurm::array_task)).choice.standalone);
  CHECK(outcome(environment(slurm::array_task)).choice.policy.run_id == "slurm-6.0");
}

TEST_CASE("several tasks on a node are an error that names the right command") {
  CHECK_THROWS_WITH(
      outcome(environment(slurm::several_tasks)),
      "Slurm job 2, step 0 started 2 ddprun on this node, and one is enough: it starts the workers itself; "
      "use 'srun --ntasks-per-node=1 ddprun --nproc_per_node=2 ...'");
  // With an explicit number of nodes, or as jobs of one node, these are allowed.
  CHECK(outcome(environment(slurm::several_tasks), {{"nnodes", "4"}}).choice.policy.max_nodes == 4);
  CHECK(outcome(environment(slurm::several_tasks), {{"standalone", "true"}}).choice.standalone);
}

TEST_CASE("the batch script of a job with several nodes is an error, that of one node is not") {
  CHECK_THROWS_WITH(outcome(environment(slurm::batch_script)), Catch::Contains("srun --ntasks-per-node=1 ddprun"));
  CHECK(outcome(environment(slurm::batch_script), {{"nnodes", "1"}}).choice.standalone);
  const auto alone = outcome(environment(slurm::batch_script, {{"SLURM_JOB_NUM_NODES", "1"}}));
  CHECK(alone.choice.standalone);
  CHECK(alone.line == "Slurm job 3: node 0 of 1, 2 workers for its GPUs");
}

TEST_CASE("an error about Slurm's variables names the variable") {
  CHECK_THROWS_WITH(outcome(environment(slurm::second_of_two, {{"SLURM_STEP_NODELIST", "n[1-"}})),
                    Catch::Contains("'n[1-' is not a node list"));
  CHECK_THROWS_WITH(outcome(environment(slurm::second_of_two, {{"SLURM_NODEID", "2"}})),
                    "Slurm job 1, step 0: SLURM_NODEID = 2, but SLURM_STEP_NODELIST names 2 nodes");
}

TEST_CASE("each option and PET_ variable overrides what was discovered") {
  const auto& base = slurm::second_of_two;
  const auto elastic = outcome(environment(base), {{"nnodes", "1:2"}});
  CHECK(elastic.choice.policy.min_nodes == 1);
  CHECK(elastic.choice.host == "n1");
  CHECK(elastic.choice.node_rank == 1);
  CHECK(outcome(environment(base, {{"PET_RDZV_ID", "mine"}})).choice.policy.run_id == "mine");
  const auto elsewhere = outcome(environment(base), {{"rdzv_endpoint", "other:7"}});
  CHECK(elsewhere.choice.host == "other");
  CHECK(elsewhere.choice.policy.max_nodes == 2);
  CHECK_FALSE(elsewhere.choice.is_host);
  CHECK(outcome(environment(base, {{"MASTER_ADDR", "e"}})).choice.host == "e");
  CHECK(outcome(environment(base), {{"nnodes", "2"}, {"rdzv_endpoint", "other:7"}}).line.empty());
}

TEST_CASE("a pod of an indexed Job is placed by its index and the manifest's variables") {
  const auto found = outcome(Environment(pod));
  CHECK(found.choice.policy.max_nodes == 4);
  CHECK(found.choice.policy.run_id == "train");
  CHECK(found.choice.node_rank == 2);
  CHECK(found.choice.host == "train-0.train-nodes");
  CHECK(found.choice.port == 29400);
  CHECK(found.choice.is_host == false);
  CHECK(found.line == "Kubernetes job train: node 2 of 4, rendezvous at train-0.train-nodes:29400");
}

TEST_CASE("a variable that is missing in the manifest is named") {
  CHECK_THROWS_WITH(outcome(Environment(pod_with("DDPRUN_K8S_JOB", ""))), Catch::Contains("but not DDPRUN_K8S_JOB"));
  CHECK_THROWS_WITH(outcome(Environment(pod_with("JOB_COMPLETION_INDEX", ""))),
                    Catch::Contains("but not JOB_COMPLETION_INDEX"));
  CHECK_THROWS_WITH(outcome(Environment(pod_with("DDPRUN_K8S_COMPLETIONS", "many"))),
                    "DDPRUN_K8S_COMPLETIONS = many: expected a whole number at least 1");
  CHECK_THROWS_WITH(outcome(Environment(pod_with("JOB_COMPLETION_INDEX", "4"))),
                    "JOB_COMPLETION_INDEX = 4: expected less than DDPRUN_K8S_COMPLETIONS = 4");
}

TEST_CASE("a node of a SkyPilot task gets number, rank, endpoint, id and workers from its variables") {
  const auto node = outcome(Environment(sky_task));
  CHECK(node.choice.policy.min_nodes == 2);
  CHECK(node.choice.policy.max_nodes == 2);
  CHECK(node.choice.node_rank == 1);
  CHECK(node.choice.host == "10.0.0.4");
  CHECK(node.choice.policy.run_id == "sky-2026-11-25-10-00-00-000000_train_3");
  CHECK(node.nproc == "4");
  CHECK(node.line.starts_with("SkyPilot task sky-2026-11-25-10-00-00-000000_train_3: node 1 of 2, rendezvous at "));
}

TEST_CASE("tasks of SkyPilot that share nodes get different ports, which all nodes of a task agree on") {
  const auto port = [](Variables variables, const std::string& id) {
    variables["SKYPILOT_TASK_ID"] = id;
    return discover_cloud_task(Environment(variables))->port;
  };
  auto other_node = sky_task;
  other_node["SKYPILOT_NODE_RANK"] = "0";
  CHECK(port(sky_task, "task_3") == port(other_node, "task_3"));
  CHECK(port(sky_task, "task_3") != port(sky_task, "task_4"));
  CHECK(port(sky_task, "task_3") >= 16384);
  CHECK(port(sky_task, "task_3") < 16384 + 12007);
}

TEST_CASE("a node of a dstack task gets its job from the variables, and without GPUs the default number of workers") {
  const auto node = outcome(Environment(dstack_task));
  CHECK(node.choice.policy.min_nodes == 3);
  CHECK(node.choice.node_rank == 0);
  CHECK(node.choice.host == "10.0.0.7");
  CHECK(node.choice.port == 29400);
  CHECK(node.choice.policy.run_id == "brave-fox-1");
  CHECK(node.nproc == "1");
}

TEST_CASE("a variable of a cloud task that is missing or wrong is named") {
  const auto error = [](const Variables& variables) { return discover_cloud_task(Environment(variables))->error; };
  CHECK(error(without(sky_task, "SKYPILOT_NODE_IPS")) ==
        "SKYPILOT_NODE_RANK is set, as in a SkyPilot task, but SKYPILOT_NODE_IPS is not");
  auto beyond = dstack_task;
  beyond["DSTACK_NODE_RANK"] = "3";
  CHECK(error(beyond) == "DSTACK_NODE_RANK = 3: expected less than DSTACK_NODES_NUM = 3");
  CHECK_FALSE(discover_cloud_task(Environment(without(dstack_task, "DSTACK_NODE_RANK"))));
}
