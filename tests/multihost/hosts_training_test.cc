#include <csignal>

#include "tests/multihost/hosts.h"

// Training across hosts, through what happens to hosts and links.
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds patience{100};

// As ddprun has it for several ranks on one host: the bits depend on it.
const Variables one_thread{{"OMP_NUM_THREADS", "1"}};

// Two hosts with one rank each.
struct TwoRanks {
  Hosts hosts{2};
  Training training;

  Words job(int host, const Words& options = {}, const Words& overrides = {}) const {
    return Hosts::behind(hosts.net.enter(host), training.job(hosts.meeting(options), overrides));
  }
  Variables variables() const {
    auto variables = one_thread;
    variables.merge(training.marker.variables());
    return variables;
  }
};

std::string parameters_of_one_host(const Words& overrides = {}) {
  const Training training;
  Child job(training.job({"--standalone", "--nproc_per_node=2"}, overrides), one_thread);
  const auto result = job.wait(patience);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

}  // namespace

TEST_CASE("the store's host is killed in the middle and started again: the training goes on from its checkpoint") {
  need_hosts();
  const auto expected = parameters_of_one_host();
  const TwoRanks two;
  const Words options{"--nnodes=2", "--max_restarts=1", "--rdzv_conf=store_timeout=120"};
  Child first(two.job(0, options), two.variables());
  Child second(two.job(1, options), two.variables());
  second.wait_until([&] { return two.training.checkpoints() > 0; }, "a checkpoint", patience);
  first.signal(SIGKILL);
  first.wait(patience);
  second.wait_for_err("lost the rendezvous server at " + two.hosts.endpoint(), patience);
  Child again(two.job(0, options), two.variables());
  const auto a = again.wait(patience);
  const auto b = second.wait(patience);
  INFO(a.err << b.err);
  CHECK(a.code == 0);
  CHECK(b.code == 0);
  CHECK(parameters_of(a.out + b.out) == expected);
}

TEST_CASE("a narrow link slows a training down and changes nothing else") {
  need_hosts();
  const Words few_steps{"--train.epochs=1", "--data.samples=640"};
  const auto expected = parameters_of_one_host(few_steps);
  TwoRanks two;
  two.hosts.net.limit(1, "200mbit");
  Child first(two.job(0, {"--nnodes=2"}, few_steps), two.variables());
  Child second(two.job(1, {"--nnodes=2"}, few_steps), two.variables());
  const auto a = first.wait(patience);
  const auto b = second.wait(patience);
  INFO(a.err << b.err);
  CHECK(a.code == 0);
  CHECK(b.code == 0);
  CHECK(parameters_of(a.out + b.out) == expected);
}

TEST_CASE("a training over IPv6") {
  need_hosts();
  const Words few_steps{"--train.epochs=1", "--data.samples=640"};
  const TwoRanks two;
  const auto job = [&](int host) {
    const Words options{"--nnodes=2", "--nproc_per_node=1",
                        "--rdzv_endpoint=[" + two.hosts.net.address6(0) + "]:29400"};
    return Hosts::behind(two.hosts.net.enter(host), two.training.job(options, few_steps));
  };
  Child first(job(0), two.variables());
  Child second(job(1), two.variables());
  const auto a = first.wait(patience);
  const auto b = second.wait(patience);
  INFO(a.err << b.err);
  CHECK(a.code == 0);
  CHECK(b.code == 0);
  CHECK_FALSE(parameters_of(a.out + b.out).empty());
}

TEST_CASE("hosts whose ranks show that they share no memory train in two levels") {
  need_hosts();
  const Words apart{"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  Words attempt = apart;
  attempt.push_back("/bin/true");
  if (run_child(attempt).code != 0) SKIP("no process-id namespace with a /proc of its own can be made here");
  const Hosts hosts(2);
  const Training training;
  const auto job = [&](int host) {
    Words enter = hosts.net.enter(host);
    enter.insert(enter.end(), apart.begin(), apart.end());
    const Words options{"--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint=" + hosts.endpoint()};
    return Hosts::behind(enter, training.job(options, {"--train.epochs=1", "--data.samples=640"}));
  };
  Child first(job(0), training.marker.variables());
  Child second(job(1), training.marker.variables());
  const auto a = first.wait(patience);
  const auto b = second.wait(patience);
  INFO(a.out << a.err << b.out << b.err);
  CHECK(a.code == 0);
  CHECK(b.code == 0);
  CHECK((a.out + b.out + a.err + b.err).find("back end hierarchical: the 4 ranks run on 2 hosts") != std::string::npos);
}
