#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <csignal>
#include <stdexcept>

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr int usual_nodes = 12;
constexpr Duration bound = 20min;  // from the end of the chaos to the end of the job

}  // namespace

SimulatedJob::SimulatedJob(const Schedule& schedule) : world_(schedule.seed, schedule.trace) {
  build(schedule);
}

void SimulatedJob::build(const Schedule& schedule) {
  Chance& chance = world_.chance;
  const JobPolicy policy = draw_policy(schedule);
  const bool lasting_store = chance.percent(50);
  const Duration store_timeout = chance.percent(70) ? 30s : 0s;
  const bool standalone = schedule.all_nodes || chance.percent(60);
  const int spares = schedule.all_nodes || policy.fixed_ranks ? 0 : chance.between(0, 4);
  const int count = policy.fixed_ranks || schedule.all_nodes
                        ? policy.max_nodes
                        : std::min(chance.between(policy.min_nodes, policy.max_nodes) + spares, schedule.max_nodes);
  chaos_end_ = world_.time.now() + chance.duration(5s, chance.percent(20) ? 180s : 60s);
  large_ = schedule.all_nodes;

  endpoint_ = &host(standalone ? "server" : "n0");
  if (standalone) {
    server_process_ = std::make_shared<Process>(world_.time);
    server_ = std::make_shared<Server>(world_, server_process_);
    endpoint_->listeners[rendezvous_port] = server_;
  }
  for (int i = 0; i < count; ++i) {
    NodeSpec spec{.name = fmt::format("n{}", i), .nproc = schedule.all_nodes ? 1 : chance.between(1, 3)};
    if (policy.fixed_ranks || chance.percent(20)) spec.node_rank = i;
    spec.policy = policy;
    spec.serves_endpoint = !standalone && i == 0;
    spec.lasting_store = lasting_store;
    spec.store_timeout = store_timeout;
    spec.longest_stop = schedule.all_nodes ? 50ms : 4s;
    spec.longest_work = 10s;
    if (schedule.all_nodes) spec.one_worker_fails_in = 2 * count;
    Host& own = host(spec.name);
    nodes_.push_back(std::make_unique<Node>(world_, spec, own, *endpoint_,
                                            [this](const std::string& address) -> Host& { return host(address); }));
  }
  for (const auto& node : nodes_) start_later(*node, schedule.all_nodes || chance.percent(80) ? 3s : 20s);
  world_.time.after(chance.duration(0us, 5s), [this] { disturb(); });
}

JobPolicy SimulatedJob::draw_policy(const Schedule& schedule) {
  Chance& chance = world_.chance;
  JobPolicy policy;
  const int most = chance.percent(90) ? std::min(usual_nodes, schedule.max_nodes) : schedule.max_nodes;
  policy.max_nodes = schedule.all_nodes ? schedule.max_nodes : chance.between(1, most);
  policy.min_nodes = schedule.all_nodes ? schedule.max_nodes / 2 : chance.between(1, policy.max_nodes);
  policy.fixed_ranks = !schedule.all_nodes && chance.percent(25);
  if (policy.fixed_ranks) policy.min_nodes = policy.max_nodes;
  policy.max_restarts = chance.between(0, 4);
  policy.last_call = (schedule.all_nodes ? 5'000 : chance.between(0, 5'000)) * 1ms;
  policy.join_timeout = 60s;
  policy.keep_alive_interval = chance.between(1, 3) * 1s;
  return policy;
}

Host& SimulatedJob::host(const std::string& name) {
  Host& host = hosts_[name];
  host.name = name;
  return host;
}

void SimulatedJob::run() {
  while (!over()) {
    if (!world_.time.step()) throw std::logic_error("nothing more happens, and " + who_is_left());
    if (world_.time.now() > chaos_end_ + bound)
      throw std::logic_error(fmt::format("{} minutes after the chaos has ended {}", bound / 1min, who_is_left()));
  }
}

bool SimulatedJob::over() const {
  if (starting_ > 0 || chaos()) return false;
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->up(); });
}

std::string SimulatedJob::who_is_left() const {
  std::string names;
  for (const auto& node : nodes_)
    if (node->up() && names.size() < 100) names += " " + node->name();
  return "there is no end for" + names;
}

void SimulatedJob::start_later(Node& node, std::chrono::microseconds longest) {
  ++starting_;
  world_.time.after(world_.chance.duration(0us, longest), [this, &node] {
    --starting_;
    if (world_.referee.counts().verdicts == 0) node.start();
  });
}

// ---- what goes wrong

void SimulatedJob::disturb() {
  if (!chaos()) {
    for (const auto& node : nodes_) node->calm();
    return;
  }
  Chance& chance = world_.chance;
  if (server_ && chance.one_in(10)) disturb_server();
  const auto last = static_cast<int>(nodes_.size()) - 1;
  // Now and then a whole rack at once.
  const int rack = chance.one_in(10) ? chance.between(1, last / 3 + 1) : 1;
  const int victims = large_ ? 5 : rack;
  for (int i = 0; i < victims; ++i) disturb_node(*nodes_[static_cast<std::size_t>(chance.between(0, last))]);
  const auto pause = large_ ? chance.duration(10s, 30s) : chance.duration(100ms, 8s);
  world_.time.after(pause, [this] { disturb(); });
}

void SimulatedJob::disturb_node(Node& node) {
  Chance& chance = world_.chance;
  const auto a_while = [&] { return chance.duration(100ms, chance.percent(70) ? 3s : 20s); };
  switch (chance.between(0, 9)) {
    case 0:
      node.kill();
      break;
    case 1:
      node.lose_power();
      break;
    case 2:
      node.signal(SIGTERM);
      break;
    case 3:
    case 4:
    case 5:
      node.freeze(a_while());
      break;
    default:
      node.cut_off(a_while());
  }
  if (!node.up() && node.restartable() && chance.percent(large_ ? 5 : 80)) start_later(node, 10s);
}

void SimulatedJob::disturb_server() {
  Chance& chance = world_.chance;
  const Duration a_while = chance.duration(100ms, chance.percent(70) ? 4s : 60s);
  world_.referee.rendezvous_disturbed(world_.time.now() + a_while);
  world_.note("server", "is {} for {} ms", chance.percent(50) ? "stopped" : "cut off", a_while / 1ms);
  if (chance.percent(50))
    server_process_->freeze(a_while);
  else
    endpoint_->cut_until = std::max(endpoint_->cut_until, world_.time.now() + a_while);
}

}  // namespace ddprun::testing
