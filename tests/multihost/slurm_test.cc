#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/slurm_cluster.h"

// ddprun in jobs of a real Slurm of two nodes.
using namespace ddprun::testing;
using ddprun::Deadline;

namespace {

void need_slurm() {
  if (const auto why = SlurmCluster::why_not(); !why.empty()) SKIP(why);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Words srun(const Words& options, const Words& launch, const Words& verbs) {
  Words words{"/usr/bin/srun"};
  words.insert(words.end(), options.begin(), options.end());
  for (const auto& word : command(launch, verbs)) words.push_back(word);
  return words;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Puts ddprun on PATH, as a user has it.
Variables with_ddprun_on_path(Variables more = {}) {
  more["PATH"] = std::filesystem::path(DDPRUN_PROGRAM).parent_path().string() + ":/usr/bin:/bin:/usr/sbin:/sbin";
  return more;
}

}  // namespace

TEST_CASE("one ddprun per node of a Slurm job finds nodes, rank and endpoint, and keeps Slurm's variables") {
  need_slurm();
  const SlurmCluster slurm(2);
  const auto job = slurm.finish(srun({"-N2", "--ntasks-per-node=1"}, {"--nproc_per_node=2"}, {"env"}));
  INFO(job.out << job.err);
  REQUIRE(job.code == 0);
  for (const auto* rank : {"0", "1", "2", "3"}) CHECK(count(job.out, std::string("]:RANK=") + rank + "\n") == 1);
  CHECK(count(job.out, ":WORLD_SIZE=4\n") == 4);
  CHECK(count(job.out, ":SLURM_STEP_NODELIST=n[1-2]\n") == 4);
  CHECK(count(job.out, ":SLURMD_NODENAME=n1\n") == 2);
  CHECK(count(job.out, ":SLURM_PROCID=1\n") == 2);
  CHECK(count(job.out, ":TORCHELASTIC_RUN_ID=slurm-1.0\n") == 4);
  CHECK(count(job.err, "Slurm job 1, step 0: node 0 of 2, rendezvous at n1:16421\n") == 1);
}

TEST_CASE("GPUs of a Slurm job become workers, a failed worker's exit code is the step's") {
  need_slurm();
  const SlurmCluster slurm(2);
  const auto job = slurm.finish(
      srun({"-N2", "--ntasks-per-node=1", "--gpus-per-node=2"}, {}, {"if-rank=3", "exit=7", "end-if", "pause"}));
  INFO(job.out << job.err);
  CHECK(job.code == 7);
  CHECK(count(job.err, "2 workers for its GPUs") == 1);
  CHECK(count(job.err, "rank 3") > 0);
}

TEST_CASE("several tasks on a node of a Slurm job are refused with the right command") {
  need_slurm();
  const SlurmCluster slurm(2);
  const auto job = slurm.finish(srun({"-N2", "--ntasks-per-node=2"}, {}, {"env"}));
  INFO(job.out << job.err);
  CHECK(job.code == 2);
  CHECK(job.out.empty());
  CHECK(count(job.err, "use 'srun --ntasks-per-node=1 ddprun --nproc_per_node=2 ...'") == 4);
}

TEST_CASE("scripts/slurm/train.sbatch runs a job") {
  need_slurm();
  const SlurmCluster slurm(2);
  const auto log = slurm / "log";
  const auto job = slurm.finish({"/usr/bin/sbatch", "--wait", "--output=" + log.string(), DDPRUN_SLURM "/train.sbatch",
                                 "--nproc_per_node=2", VICTIM_PROGRAM, "env"},
                                with_ddprun_on_path());
  const auto out = text_of(log);
  INFO(job.out << job.err << out);
  CHECK(job.code == 0);
  CHECK(count(out, ":WORLD_SIZE=4\n") == 4);
}

namespace {

// A batch job of scripts/slurm/elastic.sbatch on both nodes. Its workers are a shell script that creates files in the
// cluster's folder.
struct ElasticJob {
  explicit ElasticJob(const SlurmCluster& cluster, const std::string& work) : slurm(cluster) {
    const auto submitted =
        slurm.finish({"/usr/bin/sbatch", "--nodes=2", "--chdir=" + (slurm / ".").string(), "--output=log",
                      DDPRUN_SLURM "/elastic.sbatch", "--rdzv_conf=last_call_timeout=1", "bash", "-c", work},
                     with_ddprun_on_path());
    INFO(submitted.err);
    REQUIRE(submitted.code == 0);
  }
  std::string log() const { return text_of(slurm / "log"); }
  void wait_for(const std::function<bool()>& condition, const std::string& what) {
    const auto deadline = Deadline::in(std::chrono::seconds(90));
    while (!condition()) {
      INFO(what << " did not come\n" << log());
      REQUIRE_FALSE(deadline.expired());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void wait_for_file(const std::string& name) {
    wait_for([&] { return std::filesystem::exists(slurm / name); }, name);
  }

  const SlurmCluster& slurm;
};

}  // namespace

TEST_CASE("scripts/slurm/elastic.sbatch continues without a lost node") {
  need_slurm();
  SlurmCluster slurm(2);
  ElasticJob job(slurm,
                 "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { echo goes on as $WORLD_SIZE; exit 0; }; touch runs-$RANK; "
                 "trap 'exit 1' TERM; while :; do sleep 0.1; done");
  job.wait_for_file("runs-0");
  job.wait_for_file("runs-1");
  slurm.power_off(2);
  job.wait_for([&] { return count(job.log(), "goes on as 1") == 1; }, "the new round");
  CHECK(count(job.log(), "new round: node n2 was lost") == 1);
}

TEST_CASE("scripts/slurm/elastic.sbatch stops its workers and is queued again shortly before its time limit") {
  need_slurm();
  const SlurmCluster slurm(2);
  ElasticJob job(
      slurm,
      "[ ! -e saved-$RANK ] || { echo resumed of $WORLD_SIZE; exit 0; }; trap 'touch saved-$RANK; exit 1' TERM; "
      "touch runs-$RANK; while :; do sleep 0.1; done");
  job.wait_for_file("runs-0");
  job.wait_for_file("runs-1");
  // Slurm sends this signal 120 s before the end.
  CHECK(slurm.finish({"/usr/bin/scancel", "--batch", "--signal=USR1", "1"}).code == 0);
  job.wait_for_file("saved-0");
  job.wait_for_file("saved-1");
  const auto state = [&] { return slurm.finish({"/usr/bin/squeue", "-h", "-j1", "-o%T %r"}).out; };
  job.wait_for([&] { return state() == "PENDING BeginTime\n"; }, "the job in the queue again");
  // Slurm would delay it by two minutes.
  CHECK(slurm.finish({"/usr/bin/scontrol", "update", "JobId=1", "StartTime=now"}).code == 0);
  job.wait_for([&] { return count(job.log(), "resumed of 2") == 2; }, "the job's second run");
}
