// Jobs of two nodes, one under PyTorch's own torchrun and one under ddprun: a static job, with either as node rank 0;
// and c10d jobs, in which they refuse each other.
#include <csignal>
#include <optional>

#include "tests/process/launch.h"
#include "tests/process/torch_job.h"
#include "tests/support/catch.h"
#include "tests/support/torch_python.h"

using namespace ddprun::testing;

namespace {

// The options that both launchers accept, for either node rank.
class StaticJob {
 public:
  explicit StaticJob(Words more = {}) {
    options_ = {"--rdzv_backend=static", "--nnodes=2", "--nproc_per_node=2", "--master_addr=127.0.0.1",
                "--master_port=" + std::to_string(free_port())};
    options_.insert(options_.end(), more.begin(), more.end());
  }
  Words node(int rank) const {
    auto words = options_;
    words.push_back("--node_rank=" + std::to_string(rank));
    return words;
  }

 private:
  Words options_;
};

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void check_ended_well(const Child::Result& result) {
  INFO(result.out << result.err);
  CHECK(result.code == 0);
}

}  // namespace

TEST_CASE("torchrun and ddprun share a static job that trains, either of them as node rank 0") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  const int our_rank = GENERATE(0, 1);
  CAPTURE(our_rank, python->version_text);
  const TorchJob job(*python);
  const StaticJob nodes;
  auto ours = job.start(nodes.node(our_rank), {"40"});
  auto theirs = job.start_by_torchrun(nodes.node(1 - our_rank), {"40"});
  const auto from_ours = ours.wait(torch_timeout);
  const auto from_theirs = theirs.wait(torch_timeout);
  check_ended_well(from_ours);
  check_ended_well(from_theirs);
  CHECK_THAT(from_ours.out + from_theirs.out, Catch::Contains("rank 0 of 4") && Catch::Contains("rank 3 of 4") &&
                                                  Catch::Contains("40 steps, the result is right"));
}

// The workers do not communicate, so those of the other node are not affected.
TEST_CASE("in a static job with torchrun a worker fails on either side, and its launcher restarts it") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  const int our_rank = GENERATE(0, 1);
  const bool ours_fails = GENERATE(true, false);
  CAPTURE(our_rank, ours_fails, python->version_text);
  const TempDir folder;
  const StaticJob nodes({"--max_restarts=1", "--no_python"});
  const int failing_node = ours_fails ? our_rank : 1 - our_rank;
  const std::string failing = std::to_string(2 * failing_node + 1);  // its local rank 1
  const std::string restarted = (folder / "restarted").string();
  const Words worker{VICTIM_PROGRAM, "if-rank=" + failing, "if-attempt=0",       "exit=9", "end-if",
                     "end-if",       "if-rank=" + failing, "touch=" + restarted, "end-if", "wait-file=" + restarted,
                     "env"};
  Child ours(joined(joined({DDPRUN_PROGRAM}, nodes.node(our_rank)), worker));
  Child theirs(joined(joined({python->path, "-m", "torch.distributed.run"}, nodes.node(1 - our_rank)), worker));
  const auto from_ours = ours.wait(torch_timeout);
  const auto from_theirs = theirs.wait(torch_timeout);
  check_ended_well(from_ours);
  check_ended_well(from_theirs);
  const auto& failed = ours_fails ? from_ours.out : from_theirs.out;
  const auto& other = ours_fails ? from_theirs.out : from_ours.out;
  CHECK_THAT(failed, Catch::Contains("TORCHELASTIC_RESTART_COUNT=1\n"));
  CHECK_THAT(other, Catch::Contains("TORCHELASTIC_RESTART_COUNT=0\n"));
  CHECK_THAT(failed + other, Catch::Contains("WORLD_SIZE=4\n"));
}

// Each launcher sees a failure of its own workers and restarts them. The workers' keys stay in the endpoint's store, as
// between torchruns, so the script uses another store.
TEST_CASE("in a static job with torchrun a training worker is killed on either side, and both sides restart and end") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  const int our_rank = GENERATE(0, 1);
  const bool ours_dies = GENERATE(true, false);
  CAPTURE(our_rank, ours_dies, python->version_text);
  const TorchJob job(*python);
  const StaticJob nodes({"--max_restarts=1"});
  const Words arguments{"40", "20", job.release_file()};
  auto ours = job.start(nodes.node(our_rank), arguments, job.meeting());
  auto theirs = job.start_by_torchrun(nodes.node(1 - our_rank), arguments, job.meeting());
  auto& dying = ours_dies ? ours : theirs;
  const int rank = 2 * (ours_dies ? our_rank : 1 - our_rank) + 1;  // its node's local rank 1
  ours.wait_until([&] { return job.checkpoint_there(); }, "a checkpoint", torch_timeout);
  dying.wait_for_out("rank " + std::to_string(rank) + " of 4, attempt 0", torch_timeout);
  ::kill(pid_of_rank(dying.out(), rank), SIGKILL);
  job.release();
  const auto from_ours = ours.wait(torch_timeout);
  const auto from_theirs = theirs.wait(torch_timeout);
  check_ended_well(from_ours);
  check_ended_well(from_theirs);
  for (const auto* out : {&from_ours.out, &from_theirs.out}) CHECK_THAT(*out, Catch::Contains("of 4, attempt 1"));
  CHECK_THAT(from_ours.out + from_theirs.out, Catch::Contains("40 steps, the result is right"));
}

namespace {

// Both launchers with c10d at one endpoint, which one of them serves.
class C10dJob {
 public:
  Words node(bool serves) const {
    return {"--rdzv_backend=c10d",
            "--nnodes=2",
            "--nproc_per_node=1",
            "--rdzv_endpoint=" + endpoint_,
            std::string("--rdzv_conf=is_host=") + (serves ? "true" : "false"),
            "--no_python"};
  }
  Child start(const Words& launcher, bool serves) const {
    return Child(joined(joined(launcher, node(serves)), {VICTIM_PROGRAM, "env"}));
  }

 private:
  const std::string endpoint_ = "127.0.0.1:" + std::to_string(free_port());
};

void check_refused(const Child::Result& result) {
  INFO(result.out << result.err);
  CHECK(result.code == 2);
  CHECK_THAT(result.err, Catch::Contains("start ddprun on every node, or set --rdzv_backend=static and --node_rank"));
}

}  // namespace

TEST_CASE("torchrun with c10d that joins a ddprun job: both end at once, and ddprun says what to set") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  CAPTURE(python->version_text);
  const C10dJob job;
  auto ours = job.start({DDPRUN_PROGRAM}, true);
  ours.wait_for_err("1 of 2 nodes are here", torch_timeout);
  auto theirs = job.start({python->path, "-m", "torch.distributed.run"}, false);
  check_refused(ours.wait(torch_timeout));
  CHECK(theirs.wait(torch_timeout).code != 0);
}

TEST_CASE("ddprun with c10d that joins a torchrun job ends at once and says what to set") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  CAPTURE(python->version_text);
  const C10dJob job;
  auto theirs = job.start({python->path, "-m", "torch.distributed.run"}, true);
  auto ours = job.start({DDPRUN_PROGRAM}, false);
  check_refused(ours.wait(torch_timeout));
  theirs.signal(SIGKILL);  // torchrun waits for its join timeout
  theirs.wait(torch_timeout);
}
