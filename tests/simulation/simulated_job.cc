#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <csignal>
#include <stdexcept>

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr int usual_nodes = 12;
constexpr Duration bound = 20min;  // from the end of the faults to the end of the job

}  // namespace

SimulatedJob::SimulatedJob(const Schedule& schedule) : simulation_(schedule.seed, schedule.trace) {
  build(schedule);
}

void SimulatedJob::build(const Schedule& schedule) {
  RandomSource& random = simulation_.random;
  const JobPolicy policy = draw_policy(schedule);
  const bool lasting_store = random.percent(50);
  const bool replaces = random.percent(50);  // workers can recover
  const Duration store_timeout = random.percent(70) ? 30s : 0s;
  const bool standalone = schedule.all_nodes || random.percent(60);
  const int spares = schedule.all_nodes || policy.fixed_ranks ? 0 : random.between(0, 4);
  const int count = policy.fixed_ranks || schedule.all_nodes
                        ? policy.max_nodes
                        : std::min(random.between(policy.min_nodes, policy.max_nodes) + spares, schedule.max_nodes);
  faults_end_ = simulation_.time.now() + random.duration(5s, random.percent(20) ? 180s : 60s);
  large_ = schedule.all_nodes;

  endpoint_ = &host(standalone ? "server" : "n0");
  if (standalone) {
    server_process_ = std::make_shared<Process>(simulation_.time);
    server_ = std::make_shared<Server>(simulation_, server_process_);
    endpoint_->listeners[rendezvous_port] = server_;
  }
  for (int i = 0; i < count; ++i) {
    NodeSpec spec{.name = fmt::format("n{}", i), .nproc = schedule.all_nodes ? 1 : random.between(1, 3)};
    if (policy.fixed_ranks || random.percent(20)) spec.node_rank = i;
    spec.policy = policy;
    spec.serves_endpoint = !standalone && i == 0;
    spec.lasting_store = lasting_store;
    spec.store_timeout = store_timeout;
    spec.longest_stop = schedule.all_nodes ? 50ms : 4s;
    spec.longest_work = 10s;
    spec.rules = {.single_workers = replaces, .asks_server = true, .max_restarts = policy.max_restarts};
    if (schedule.all_nodes) spec.one_worker_fails_in = 2 * count;
    Host& own = host(spec.name);
    nodes_.push_back(std::make_unique<Node>(simulation_, spec, own, *endpoint_,
                                            [this](const std::string& address) -> Host& { return host(address); }));
  }
  for (const auto& node : nodes_) start_later(*node, schedule.all_nodes || random.percent(80) ? 3s : 20s);
  simulation_.time.after(random.duration(0us, 5s), [this] { disturb(); });
}

JobPolicy SimulatedJob::draw_policy(const Schedule& schedule) {
  RandomSource& random = simulation_.random;
  JobPolicy policy;
  const int most = random.percent(90) ? std::min(usual_nodes, schedule.max_nodes) : schedule.max_nodes;
  policy.max_nodes = schedule.all_nodes ? schedule.max_nodes : random.between(1, most);
  policy.min_nodes = schedule.all_nodes ? schedule.max_nodes / 2 : random.between(1, policy.max_nodes);
  policy.fixed_ranks = !schedule.all_nodes && random.percent(25);
  if (policy.fixed_ranks) policy.min_nodes = policy.max_nodes;
  policy.max_restarts = random.between(0, 4);
  policy.last_call = (schedule.all_nodes ? 5'000 : random.between(0, 5'000)) * 1ms;
  policy.join_timeout = 60s;
  policy.keep_alive_interval = random.between(1, 3) * 1s;
  policy.spares = schedule.all_nodes || policy.fixed_ranks ? 0 : random.between(0, 2);
  return policy;
}

Host& SimulatedJob::host(const std::string& name) {
  Host& host = hosts_[name];
  host.name = name;
  return host;
}

void SimulatedJob::run() {
  while (!over()) {
    if (!simulation_.time.step()) throw std::logic_error("there are no more events, but " + remaining_nodes_text());
    if (simulation_.time.now() > faults_end_ + bound)
      throw std::logic_error(fmt::format("{} minutes after the faults ended {}", bound / 1min, remaining_nodes_text()));
  }
}

bool SimulatedJob::over() const {
  if (starting_ > 0 || in_fault_period()) return false;
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->up(); });
}

std::string SimulatedJob::remaining_nodes_text() const {
  std::string names;
  for (const auto& node : nodes_)
    if (node->up() && names.size() < 100) names += " " + node->name();
  return "these agents have not ended:" + names;
}

void SimulatedJob::start_later(Node& node, std::chrono::microseconds longest) {
  ++starting_;
  simulation_.time.after(simulation_.random.duration(0us, longest), [this, &node] {
    --starting_;
    if (simulation_.checker.counts().results == 0) node.start();
  });
}

// ---- faults

void SimulatedJob::disturb() {
  if (!in_fault_period()) {
    for (const auto& node : nodes_) node->disable_worker_failures();
    return;
  }
  RandomSource& random = simulation_.random;
  const bool with_server = server_ && random.one_in(5);
  if (with_server) disturb_server();
  const auto last = static_cast<int>(nodes_.size()) - 1;
  // Sometimes a whole rack is disturbed at once.
  const int rack = random.one_in(10) ? random.between(1, last / 3 + 1) : 1;
  const int victims = large_ ? 5 : with_server && random.percent(70) ? 0 : rack;
  for (int i = 0; i < victims; ++i) disturb_node(*nodes_[static_cast<std::size_t>(random.between(0, last))]);
  const auto pause = large_ ? random.duration(10s, 30s) : random.duration(100ms, 8s);
  simulation_.time.after(pause, [this] { disturb(); });
}

void SimulatedJob::disturb_node(Node& node) {
  RandomSource& random = simulation_.random;
  const auto a_while = [&] { return random.duration(100ms, random.percent(70) ? 3s : 20s); };
  switch (random.between(0, 9)) {
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
  if (!node.up() && node.restartable() && random.percent(large_ ? 5 : 80)) start_later(node, 10s);
}

// Another server, which knows nothing, is started at the endpoint.
void SimulatedJob::restart_server(Duration after) {
  if (!server_process_->alive()) return;
  simulation_.checker.rendezvous_disturbed(simulation_.time.now() + after);
  simulation_.note("server", "is killed, and started again in {} ms", after / 1ms);
  server_process_->kill();
  simulation_.time.after(after, [this] {
    server_process_ = std::make_shared<Process>(simulation_.time);
    server_ = std::make_shared<Server>(simulation_, server_process_);
    endpoint_->listeners[rendezvous_port] = server_;
  });
}

void SimulatedJob::disturb_server() {
  RandomSource& random = simulation_.random;
  const Duration a_while = random.duration(100ms, random.percent(70) ? 4s : 60s);
  if (random.percent(50)) return restart_server(random.duration(0us, random.percent(80) ? 2s : 60s));
  simulation_.checker.rendezvous_disturbed(simulation_.time.now() + a_while);
  simulation_.note("server", "is {} for {} ms", random.percent(50) ? "stopped" : "cut off", a_while / 1ms);
  if (random.percent(50))
    server_process_->freeze(a_while);
  else
    endpoint_->cut_until = std::max(endpoint_->cut_until, simulation_.time.now() + a_while);
}

}  // namespace ddprun::testing
