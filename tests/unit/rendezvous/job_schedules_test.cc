#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/etcd_member.h"

// Nodes of etcd jobs under random schedules: each step of a node may come early, late or twice; responses get lost;
// nodes die, freeze while they lead, leave and join. Then the remaining nodes run without faults, and their job has to
// end. A failing seed is printed and can be replayed.
using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed) {
    const int least = between(1, 2);
    policy_ = {.run_id = "job",
               .min_nodes = least,
               .max_nodes = least + between(1, 2),
               .max_restarts = between(0, 3),
               .last_call = std::chrono::milliseconds(between(0, 1) * 500),
               .join_timeout = 600s};
    etcd_.on_put = [this](const FakeEtcd& etcd, const std::string& key, const std::string& value) {
      if (key == job_keys.state()) check_writer(etcd, value);
    };
    for (int i = 0; i < least; ++i) add();
  }

  void run() {
    for (int step = 0; step < 500; ++step) disturb();
    calm();
  }

  int starts = 0, results = 0, takeovers = 0;

 private:
  using MemberPtr = std::unique_ptr<Member>;

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  static void fail(const std::string& what) { throw std::logic_error(what); }

  // ---- invariants

  void check_writer(const FakeEtcd& etcd, const std::string& value) {
    const auto state = parse_job_state(job_keys.state(), value);
    const auto* leader = etcd.find(job_keys.leader());
    if (!leader || leader->value != state.writer) fail("somebody wrote who does not lead: " + state.writer);
    if (state.membership.restarts_used > policy_.max_restarts) fail("more restarts than the budget");
    if (state.writer != last_writer_) ++takeovers;
    last_writer_ = state.writer;
  }

  void check_start(const Member& member) {
    ++starts;
    const auto generation = member.running->generation;
    std::set<std::string> ids;
    int next_rank = 0;
    for (const auto& one : member.running->members) {
      ids.insert(one.node_id);
      if (one.first_rank != next_rank) fail("ranks are not dense");
      next_rank += one.nproc;
    }
    if (ids.size() != member.running->members.size()) fail("a node is in a round twice");
    for (const auto& other : members_) {
      if (ids.contains(other->id) && !other->prepared.contains(generation))
        fail(fmt::format("generation {} started without {}", generation, other->id));
      if (other->running && other->running->generation != generation)
        fail(fmt::format("{} runs generation {} while {} starts {}", other->id, other->running->generation, member.id,
                         generation));
    }
  }

  // ---- faults

  void add() {
    auto& member = *members_.emplace_back(std::make_unique<Member>(etcd_, fmt::format("n{}", ++names_), policy_));
    member.slow = true;
    member.on_start = [this](Member& started) { check_start(started); };
  }

  void disturb() {
    const int what = between(0, 99);
    if (what < 8) return pass(between(1, 400));
    if (what < 12) return deliver_late();
    if (what < 15) return end_a_lease();
    if (what < 17 && members_.size() < 6) return add();
    if (members_.empty()) return;
    const auto index = static_cast<std::size_t>(between(0, static_cast<int>(members_.size()) - 1));
    Member& member = *members_[index];
    if (what < 19) return remove(index, between(0, 2));
    if (what < 21) return member.rewatch(now_);
    if (what < 26) return finish_workers(member);
    if (what < 36) return member.get_ready();
    if (what < 66) return static_cast<void>(member.watch_step(now_));
    write(index, between(0, 9));
  }

  void pass(int milliseconds) {
    now_.steady += std::chrono::milliseconds(milliseconds);
    now_.wall_us += milliseconds * 1000;
    for (auto& member : members_) {
      member->node.tick(now_);
      member->process_events();
    }
  }

  void write(std::size_t index, int how) {
    Member& member = *members_[index];
    if (!member.pending) member.pending = member.node.next_txn(now_);
    if (!member.pending) return;
    if (how == 0) return late_.push_back({*member.pending, member.lease});  // a copy that arrives later
    const auto result = etcd_.apply(*member.pending, member.lease, 0);
    if (how == 1) return;  // the response is lost: the request will be retried
    member.pending.reset();
    member.node.answered(result);
    member.process_events();
    if (member.job_result) member.node.finish();
    if (member.node.gone()) leave(index);
  }

  void deliver_late() {
    if (late_.empty()) return;
    std::swap(late_[static_cast<std::size_t>(between(0, static_cast<int>(late_.size()) - 1))], late_.back());
    const auto [txn, lease] = late_.back();
    late_.pop_back();
    try {
      etcd_.apply(txn, lease, 0);
    } catch (const FakeEtcd::LeaseGone&) {
    }
  }

  void end_a_lease() {
    if (dying_.empty()) return;
    etcd_.end_lease(dying_.back());
    dying_.pop_back();
  }

  // The node dies; or is frozen, so that its lease expires and its write arrives late; or leaves.
  void remove(std::size_t index, int how) {
    Member& member = *members_[index];
    if (how == 0) dying_.push_back(member.lease);
    if (how == 1) {
      if (!member.pending) member.pending = member.node.next_txn(now_);
      if (member.pending) late_.push_back({*member.pending, member.lease});
      etcd_.end_lease(member.lease);
    }
    if (how == 2) {
      etcd_.apply(member.node.leave("a signal"), member.lease, 0);
      etcd_.end_lease(member.lease);
    }
    members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void leave(std::size_t index) {
    ++results;
    etcd_.end_lease(members_[index]->lease);
    members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void finish_workers(Member& member) {
    if (!member.running) return;
    const auto generation = member.running->generation;
    member.running.reset();
    if (between(0, 3) == 0)
      member.node.failure(now_, generation, {{.rank = 0, .host = member.id, .exit_code = 3}});
    else
      member.node.success(now_, generation);
  }

  // ---- the end

  void calm() {
    while (!dying_.empty()) end_a_lease();
    while (!late_.empty()) deliver_late();
    while (static_cast<int>(members_.size()) < policy_.min_nodes) add();
    for (int round = 0; round < 400 && !members_.empty(); ++round) {
      for (std::size_t i = members_.size(); i-- > 0;) behave(i);
      pass(100);
      if (members_.empty() ||
          std::any_of(members_.begin(), members_.end(), [](const auto& m) { return !m->job_result; }))
        continue;
    }
    std::string stuck;
    for (const auto& member : members_)
      stuck += fmt::format(" {}(running {}, {})", member->id, member->running ? 1 : 0, member->last_wait);
    // Nodes of a later job with too few nodes are still waiting.
    const bool waits = static_cast<int>(members_.size()) < policy_.min_nodes;
    if (!members_.empty() && !waits) {
      for (const auto& e : etcd_.range("")) stuck += "\n" + e.key + " = " + e.value;
      fail("no job result for" + stuck);
    }
    if (members_.empty() && !etcd_.range("").empty()) leftovers();
  }

  // The last node to leave may not lead; in that case the job's lease removes the records.
  void leftovers() {
    for (const auto& entry : etcd_.range(""))
      if (entry.key != job_keys.state() && entry.key != job_keys.announcement()) fail("left behind: " + entry.key);
  }

  void behave(std::size_t index) {
    Member& member = *members_[index];
    member.slow = false;
    member.get_ready();
    while (member.watch_step(now_)) continue;
    if (member.running) {
      const auto generation = member.running->generation;
      member.running.reset();
      member.node.success(now_, generation);
    }
    if (member.job_result) member.node.finish();
    write(index, 9);
  }

  std::mt19937_64 random_;
  JobPolicy policy_;
  EtcdMoment now_{Membership::Time(1h), 1'000'000};
  FakeEtcd etcd_;
  std::vector<MemberPtr> members_;
  int names_ = 0;
  std::string last_writer_;
  std::vector<std::pair<EtcdTxn, std::int64_t>> late_;
  std::vector<std::int64_t> dying_;
};

}  // namespace

TEST_CASE("etcd jobs under random schedules: one leader writes, no node runs in two rounds, every job ends") {
  int starts = 0, results = 0, takeovers = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Schedule schedule(seed);
    try {
      schedule.run();
    } catch (const std::exception& broken) {
      FAIL("seed " << seed << ": " << broken.what());
    }
    starts += schedule.starts;
    results += schedule.results;
    takeovers += schedule.takeovers;
  }
  // The schedules reach the code paths that they test.
  CHECK(starts > 400);
  CHECK(results > 400);
  CHECK(takeovers > 400);
}
