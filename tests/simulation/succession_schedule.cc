#include "tests/simulation/succession_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/simulation/election_job.h"

namespace ddprun::testing {
namespace election {

using namespace std::chrono_literals;

void Job::start(const std::string& id, std::optional<ServerName> target) {
  processes_[id] = std::make_unique<Process>(*this, id, std::move(target), options_.ties);
  ++started_;
  schedule_ticks(id);
}

void Job::schedule_ticks(const std::string& id) {
  time.after(random.duration(15ms, 25ms), [this, id] {
    const auto& process = processes_.at(id);
    if (!process->alive) return;
    if (process->frozen)
      process->held.push_back([&ticking = *process] { ticking.tick(); });
    else
      process->tick();
    schedule_ticks(id);
  });
}

void Job::deliver(const std::string& to, std::function<void(Process&)> what) {
  const auto found = processes_.find(to);
  if (found == processes_.end() || !found->second->alive) return;
  Process& process = *found->second;
  if (process.frozen)
    process.held.push_back([&process, what] { what(process); });
  else
    what(process);
}

void Job::send(const std::string& from, const std::string& to, Message message) {
  if (!reachable(from, to) || (!options_.ties && faulty() && random.one_in(50))) return;
  const auto delay = random.one_in(40) ? random.duration(1ms, 600ms) : random.duration(200us, 15ms);
  time.after(delay, [this, from, to, message = std::move(message)] {
    if (reachable(from, to)) deliver(to, [from, message](Process& process) { process.receive(from, message); });
  });
}

// The kernel of a node refuses connections to the port of a process that has ended.
void Job::probe(const std::string& from, const std::string& to) {
  time.after(random.duration(200us, 5ms), [this, from, to] {
    if (reachable(from, to) && !processes_.at(to)->alive)
      deliver(from, [to](Process& process) { process.receive(to, Probed{}); });
  });
}

void Job::began(const Process& server) {
  const auto term = server.lease->server().term;
  if (term > 0) ++outcome_.elections;
  const auto [other, first] = servers_.emplace(term, server.id);
  if (!first && other->second != server.id)
    broke(fmt::format("{} and {} decide in term {}", other->second, server.id, term));
  const auto& electorate = server.lease->electorate();
  if (term > 0 && server.lease->server().inherited < last_confirmed_ && electorate.confirmed() < last_confirmed_)
    broke(fmt::format("{} decides in term {} and does not know set {}.{}", server.id, term, last_confirmed_.term,
                      last_confirmed_.number));
}

void Job::deposed(const Process& server) {
  ++outcome_.deposed;
  note(server.id, "steps down in term {}", server.lease->server().term);
}

void Job::decided(const Process& server) {
  ++outcome_.decisions;
  const auto nodes = server.lease->electorate().newest().nodes;
  if (std::ranges::find(nodes, server.id) == nodes.end()) ++outcome_.outside;
  const auto term = server.lease->server().term;
  if (servers_.rbegin()->first > term)
    broke(fmt::format("{} decides in term {} after one of term {}", server.id, term, servers_.rbegin()->first));
  for (const auto& [id, other] : processes_)
    if (other->alive && other->lease && id != server.id && other->lease->may_decide(time.now()))
      broke(fmt::format("{} decides in term {} while {} may in term {}", server.id, term, id,
                        other->lease->server().term));
}

void Job::confirmed(const Process& server, ElectorateVersion version) {
  ++outcome_.confirmed;
  note(server.id, "set {}.{} is confirmed", version.term, version.number);
  if (version < last_confirmed_)
    broke(fmt::format("set {}.{} is confirmed after {}.{}", version.term, version.number, last_confirmed_.term,
                      last_confirmed_.number));
  last_confirmed_ = std::max(last_confirmed_, version);
}

void Job::gave_up(const Process& node) {
  ++outcome_.given_up;
  note(node.id, "gives up its server");
}

Process* Job::some(const std::function<bool(Process&)>& which) {
  std::vector<Process*> found;
  for (auto& [id, process] : processes_)
    if (process->alive && which(*process)) found.push_back(process.get());
  return found.empty() ? nullptr
                       : found[static_cast<std::size_t>(random.between(0, static_cast<int>(found.size()) - 1))];
}

void Job::schedule_fault() {
  time.after(random.duration(50ms, 2500ms), [this] {
    if (!faulty()) return;
    inject_fault();
    schedule_fault();
  });
}

void Job::inject_fault() {
  const bool server = random.percent(60);
  Process* victim = some([&](const Process& one) { return !one.frozen && (!server || one.lease); });
  if (!victim) return;
  switch (random.between(0, options_.ties ? 3 : 7)) {
    case 0:
      return crash(*victim);
    case 1:
      return add_node();
    case 2:
      return victim->leave();
    case 3:
      for (auto& [id, process] : processes_)
        if (process->alive && !process->frozen && random.one_in(2)) process->lose_session();
      return;
    case 4:
    case 5:
      return freeze(*victim);
    default:
      return cut();
  }
}

void Job::crash(Process& victim) {
  note(victim.id, "crashes");
  victim.alive = false;
  if (random.percent(60)) time.after(random.duration(10ms, 2000ms), [this] { add_node(); });
}

void Job::freeze(Process& victim) {
  note(victim.id, "freezes");
  victim.frozen = true;
  time.after(random.duration(50ms, 4000ms), [this, &victim] {
    note(victim.id, "returns");
    victim.frozen = false;
    while (victim.alive && !victim.held.empty()) {
      const auto next = std::move(victim.held.front());
      victim.held.pop_front();
      next();
    }
  });
}

void Job::cut() {
  sides_.clear();
  for (const auto& [id, process] : processes_) sides_[id] = random.between(0, 1);
  note("", "partition");
  time.after(random.duration(100ms, 4000ms), [this] {
    note("", "heals");
    sides_.clear();
  });
}

// A new node finds the server, at the endpoint.
void Job::add_node() {
  const Process* server = some([&](Process& one) { return one.lease && one.lease->may_decide(time.now()); });
  if (!server || started_ > 12) return;
  const auto id = fmt::format("n{}", started_);
  note(id, "starts");
  start(id, server->lease->server());
  processes_.at(id)->at_endpoint = true;
}

std::optional<ServerName> Job::server_at_endpoint() {
  const Process* server = some([&](Process& one) { return one.lease && one.lease->may_decide(time.now()); });
  return server ? std::optional(server->lease->server()) : std::nullopt;
}

bool Job::may_serve_afresh() {
  const auto lives = [&](const std::string& node) { return processes_.at(node)->alive; };
  const auto can_be_elected = [&](const Process& one) {
    const auto nodes = one.succession.electorate().all_nodes();
    return one.succession.electorate().elects(lives) || (options_.ties && nodes.size() == 2 && nodes.contains(one.id));
  };
  return sides_.empty() && std::ranges::all_of(processes_, [&](const auto& entry) {
           const auto& one = *entry.second;
           return !one.alive || (!one.frozen && !one.lease && !can_be_elected(one));
         });
}

void Job::began_afresh(const Process& server) {
  note(server.id, "serves the endpoint afresh");
  ++outcome_.fresh;
  servers_.clear();
  last_confirmed_ = {};
}

SuccessionOutcome Job::run() {
  std::vector<std::string> nodes;
  for (int i = 0; i < options_.nodes; ++i) nodes.push_back(fmt::format("n{}", i));
  for (const auto& id : nodes)
    start(id, id == "n0" ? std::nullopt : std::optional(ServerName{.node = "n0", .inherited = {}}));
  auto& first = *processes_.at("n0");
  first.succession.session_began(ServerName{.node = "n0", .inherited = {}});
  first.begin_as_first(nodes);
  schedule_fault();
  time.after(faults_end, [this] { sides_.clear(); });
  bool ends = false;
  time.after(schedule_end, [&] { ends = true; });
  while (!ends && outcome_.broken.empty() && time.step()) {
  }
  if (outcome_.broken.empty()) check_end();
  return outcome_;
}

void Job::check_end() {
  std::vector<Process*> living;
  for (const auto& [id, process] : processes_)
    if (process->alive) living.push_back(process.get());
  // A message that is late takes a server its support for a moment.
  const auto server =
      std::ranges::find_if(living, [&](Process* one) { return one->lease && !one->lease->is_over(time.now()); });
  if (server != living.end()) {
    const auto& electorate = (*server)->lease->electorate();
    const auto set = electorate.newest();
    for (const auto* one : living) {
      if (one != *server && one->succession.server() != (*server)->lease->server())
        broke(fmt::format("{} does not follow {} at the end", one->id, (*server)->id));
      const auto known = one->succession.electorate().newest();
      const bool member = std::ranges::find(set.nodes, one->id) != set.nodes.end();
      const bool differs = !known.nodes.empty() && known.nodes != set.nodes;  // they may be unknown here
      if (member && set.version == electorate.confirmed() && known.version == set.version && differs)
        broke(fmt::format("{} knows the nodes {} and {} {} at the end", one->id, fmt::join(known.nodes, " "),
                          (*server)->id, fmt::join(set.nodes, " ")));
      if (member && known.version > set.version)
        broke(fmt::format("{} knows a later set than {} at the end", one->id, (*server)->id));
    }
    return;
  }
  // Two nodes elect no server.
  const auto lives = [&](const std::string& node) { return processes_.at(node)->alive; };
  const bool majority =
      std::ranges::any_of(living,
                          [&](const Process* one) { return one->succession.electorate().newest().nodes.size() > 2; }) &&
      std::ranges::all_of(living, [&](const Process* one) { return one->succession.electorate().elects(lives); });
  outcome_.ended = !majority;
  if (majority) broke("no server decides at the end, although a majority lives");
}

}  // namespace election

SuccessionOutcome run_succession_schedule(const SuccessionOptions& options) {
  return election::Job(options).run();
}

}  // namespace ddprun::testing
