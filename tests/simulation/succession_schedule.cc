#include "tests/simulation/succession_schedule.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "rendezvous/succession/gathering.h"
#include "rendezvous/succession/server_lease.h"
#include "rendezvous/succession/succession.h"
#include "tests/simulation/virtual_time.h"
#include "tests/support/random_source.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto heartbeat_timeout = 1000ms;
constexpr auto beat_interval = 200ms;
constexpr auto support_bound = 2 * beat_interval;
constexpr LeaseBounds lease_bounds{.support = support_bound - beat_interval / 4,
                                   .patience = heartbeat_timeout - beat_interval / 2};
constexpr GatherBounds gather_bounds{.any = 60ms, .living = (heartbeat_timeout - support_bound) / 4};
constexpr auto faults_end = 12s;
constexpr auto schedule_end = 24s;

struct Join {
  std::uint64_t term = 0;
};
struct Beat {
  ServerName server;
  bool decides = false;
  Time sent{};
  NodeSet newest;
  ElectorateVersion confirmed;
};
struct Seen {
  std::uint64_t term = 0;
  Time sent{};
  ElectorateVersion known;
};
struct Probed {};  // the answer of the kernel of a node whose process has ended
struct Elected {
  ServerName server;
  bool decides = false;
};
using Message = std::variant<Join, Beat, Seen, Probed, VoteRequest, VoteReply, Elected>;

class Job;

// A process: the agent of a node, and the server in it.
class Process {
 public:
  Process(Job& job, std::string id, std::optional<ServerName> target, bool survives_tie);

  void begin_as_first(const std::vector<std::string>& nodes);
  void tick();
  // Its connection to the server is reset; the server lives.
  void lose_session();
  // Its node leaves the job, and joins it again. That of a server does so a while later.
  void leave();
  void receive(const std::string& from, const Message& message);

  const std::string id;
  bool alive = true;
  bool frozen = false;
  std::deque<std::function<void()>> held;  // what came while it was frozen
  Succession succession;
  std::optional<ServerLease> lease;  // it serves
  std::optional<ServerName> target;  // of its sessions
  bool at_endpoint = false;          // it looks for the server at the endpoint of the job

 private:
  void on(const std::string& from, const Join& join);
  void on(const std::string& from, const Beat& beat);
  void on(const std::string& from, const Seen& seen);
  void on(const std::string& from, const Probed&);
  void on(const std::string& from, const VoteRequest& request);
  void on(const std::string& from, const VoteReply& reply);
  void on(const std::string& from, const Elected& elected);
  void act(const SuccessionActions& actions);
  void end_given_up();
  void serve();
  void serve_afresh();
  bool deposed();
  bool gathers();
  void decide_on_nodes();
  void send_beat(const std::string& to);

  Job& job_;
  std::map<std::string, Time> sessions_;  // of the server here: when a node was heard last
  std::optional<Gathering> gathering_;    // the server here has been elected and has not decided yet
  std::optional<Time> supported_;         // since when it may decide, while it gathers nodes
  bool decided_ = false;                  // it has had the support to
  std::optional<NodeSet> round_;          // the last one that it has decided on, as the nodes are told
  std::uint64_t first_sets_ = 0;          // the number of the last set as a first server
  Time outside_until_{};                  // the node of the server here is in no round
  bool follows_ = false;
  Time heard_{};
  Duration suspicion_ = support_bound;  // after which silence it may give the server up
  Time next_beat_{};
};

class Job {
 public:
  explicit Job(const SuccessionOptions& options) : options_(options), random(options.seed) {}

  SuccessionOutcome run();
  void send(const std::string& from, const std::string& to, Message message);
  void probe(const std::string& from, const std::string& to);
  void decided(const Process& server);
  void confirmed(const Process& server, ElectorateVersion version);
  void began(const Process& server);
  void deposed(const Process& server);
  void gave_up(const Process& node);
  // Elected servers announce themselves at the endpoint.
  std::optional<ServerName> server_at_endpoint();
  // Returns whether no server lives, and no election can succeed. A server that is started then begins another job, as
  // far as elections are concerned.
  bool may_serve_afresh();
  void began_afresh(const Process& server);
  void gathers_too_long(const Process& server) { broke(fmt::format("{} gathers nodes for too long", server.id)); }
  void refused(const Process& server) { broke(fmt::format("{} does not follow its own server", server.id)); }

  template <class... Args>
  void note(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.trace) return;
    const std::chrono::duration<double> since = time.now() - began_at_;
    fmt::print("{:9.4f} {:<4} {}\n", since.count(), who, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void start(const std::string& id, std::optional<ServerName> target);
  void schedule_ticks(const std::string& id);
  void schedule_fault();
  void inject_fault();
  void crash(Process& victim);
  void freeze(Process& victim);
  void cut();
  void add_node();
  bool faulty() const { return time.now() - began_at_ < faults_end; }
  bool reachable(const std::string& a, const std::string& b) const { return a == b || side(a) == side(b); }
  int side(const std::string& id) const { return sides_.contains(id) ? sides_.at(id) : 0; }
  Process* some(const std::function<bool(Process&)>& which);
  void deliver(const std::string& to, std::function<void(Process&)> what);
  void check_end();
  void broke(std::string text) { outcome_.broken.push_back(std::move(text)); }

  const SuccessionOptions options_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
  std::map<std::string, int> sides_;              // of the partition
  std::map<std::uint64_t, std::string> servers_;  // that have decided, by term
  ElectorateVersion last_confirmed_;
  int started_ = 0;
  SuccessionOutcome outcome_;

 public:
  VirtualTime time;
  RandomSource random;

 private:
  const Time began_at_ = time.now();
};

// ---- a process

Process::Process(Job& job, std::string name, std::optional<ServerName> server, bool survives_tie)
    : id(std::move(name)),
      succession({.self = id,
                  .support_bound = support_bound,
                  .heartbeat_timeout = heartbeat_timeout,
                  .survives_tie = survives_tie,
                  .turn = 20ms,
                  .answer_bound = 100ms}),
      target(std::move(server)),
      job_(job),
      heard_(job.time.now()) {}

void Process::begin_as_first(const std::vector<std::string>& nodes) {
  lease.emplace(id, lease_bounds);
  for (const auto& node : nodes) sessions_[node] = job_.time.now();
  sessions_.erase(id);
}

void Process::tick() {
  const Time now = job_.time.now();
  if (lease) serve();
  if (!lease && follows_ && now - heard_ >= heartbeat_timeout) {
    follows_ = false;
    act(succession.session_lost(now, heard_));
  }
  if (!lease && follows_ && now - heard_ >= suspicion_) act(succession.server_silent(now, heard_));
  if (const auto due = succession.next_tick(); due && now >= *due) act(succession.tick(now));
  end_given_up();
  if (lease || follows_ || now < next_beat_) return;
  next_beat_ = now + beat_interval;
  if (at_endpoint) target = job_.server_at_endpoint();
  if (at_endpoint && succession.tries_endpoint() && job_.may_serve_afresh()) return serve_afresh();
  if (target) {
    job_.send(id, target->node, Join{target->term});
  }
}

void Process::lose_session() {
  if (lease || !std::exchange(follows_, false)) return;
  job_.note(id, "loses its session");
  act(succession.session_lost(job_.time.now(), heard_));
}

void Process::leave() {
  const Time now = job_.time.now();
  job_.note(id, "leaves, and joins again");
  if (lease) outside_until_ = now + job_.random.duration(50ms, 1500ms);
  if (lease || !std::exchange(follows_, false)) return;
  act(succession.session_lost(now, now));
}

// ---- the server

void Process::serve_afresh() {
  lease.emplace(id, lease_bounds, first_sets_);
  round_.reset();
  sessions_.clear();
  decided_ = at_endpoint = false;
  target.reset();
  const ServerName self{.node = id, .inherited = {}};
  if (!succession.accepts(self, true)) return job_.refused(*this);
  succession.session_began(self);
  job_.began_afresh(*this);
}

bool Process::deposed() {
  if (!lease->is_over(job_.time.now())) return false;
  job_.deposed(*this);
  lease.reset();
  gathering_.reset();
  supported_.reset();
  sessions_.clear();
  decided_ = follows_ = false;
  target.reset();
  act(succession.stepped_down(job_.time.now()));
  return true;
}

void Process::serve() {
  const Time now = job_.time.now();
  if (deposed()) return;
  if (const auto confirmed = lease->take_confirmed()) {
    job_.confirmed(*this, *confirmed);
    succession.confirm(*confirmed);
  }
  if (lease->may_decide(now)) {
    if (!std::exchange(decided_, true)) job_.began(*this);
    if (!gathers()) decide_on_nodes();
  }
  if (!lease || now < next_beat_) return;
  next_beat_ = now + beat_interval;
  for (const auto& [node, heard] : sessions_) send_beat(node);
  for (const auto& node : lease->electorate().all_nodes())
    if (node != id && !sessions_.contains(node)) {
      job_.probe(id, node);
      job_.send(id, node, Elected{lease->server(), lease->may_decide(now)});
    }
}

// Returns whether the server waits for nodes still.
bool Process::gathers() {
  if (!gathering_) return false;
  const Time now = job_.time.now();
  if (!supported_) supported_ = now;
  if (gathering_->is_complete(now, lease->electorate())) {
    gathering_.reset();
    supported_.reset();
  } else if (now >= *supported_ + gather_bounds.living) {
    job_.gathers_too_long(*this);
  }
  return gathering_.has_value();
}

// Nodes that are silent are lost, those that have come take part; now and then a node is left out for other reasons.
void Process::decide_on_nodes() {
  const Time now = job_.time.now();
  std::erase_if(sessions_, [&](const auto& session) { return now - session.second >= heartbeat_timeout; });
  std::vector<std::string> nodes;
  if (now >= outside_until_ || sessions_.empty()) nodes.push_back(id);
  for (const auto& [node, heard] : sessions_)
    if (!job_.random.one_in(300)) nodes.push_back(node);
  std::ranges::sort(nodes);
  auto newest = lease->electorate().newest().nodes;
  std::ranges::sort(newest);
  if (nodes == newest) return;
  if (nodes.empty()) return;
  const auto version = lease->adopt(now, nodes);
  round_ = NodeSet{.version = version, .nodes = nodes};
  if (version.term == 0) first_sets_ = version.number;
  succession.adopt(*round_, lease->electorate().confirmed());
  job_.note(id, "decides on set {}.{}: {}", version.term, version.number, fmt::join(nodes, " "));
  job_.decided(*this);
  for (const auto& [node, heard] : sessions_) send_beat(node);
}

void Process::send_beat(const std::string& to) {
  const auto& electorate = lease->electorate();
  job_.send(id, to,
            Beat{.server = lease->server(),
                 .decides = lease->may_decide(job_.time.now()),
                 .sent = job_.time.now(),
                 .newest = round_.value_or(electorate.newest()),
                 .confirmed = electorate.confirmed()});
}

void Process::on(const std::string& from, const Join& join) {
  if (!lease || deposed() || join.term != lease->server().term) return;
  sessions_[from] = job_.time.now();
  if (gathering_) gathering_->came(from);
  send_beat(from);
}

void Process::on(const std::string& from, const Seen& seen) {
  if (!lease || deposed() || seen.term != lease->server().term || !sessions_.contains(from)) return;
  sessions_[from] = job_.time.now();
  lease->acknowledged(job_.time.now(), from, seen.sent, seen.known);
}

void Process::on(const std::string& from, const Probed&) {
  if (lease) lease->ended(job_.time.now(), from);
  if (gathering_) gathering_->ended(from);
  act(succession.server_ended(job_.time.now(), from));
}

// ---- the agent

void Process::on(const std::string& from, const Beat& beat) {
  if (lease || !target || *target != beat.server || !succession.accepts(beat.server, beat.decides)) return;
  if (!follows_) {
    follows_ = true;
    at_endpoint = false;
    job_.note(id, "follows {} in term {}", beat.server.node, beat.server.term);
    succession.session_began(beat.server);
  }
  heard_ = job_.time.now();
  succession.server_heard();
  if (job_.random.one_in(5)) suspicion_ = job_.random.duration(support_bound / 2, heartbeat_timeout);
  if (beat.newest.version.term == beat.server.term) succession.adopt(beat.newest, beat.confirmed);
  succession.confirm(beat.confirmed);
  job_.send(id, from,
            Seen{.term = beat.server.term, .sent = beat.sent, .known = succession.electorate().newest().version});
}

void Process::on(const std::string& from, const VoteRequest& request) {
  if (gathering_) gathering_->heard(from);
  const auto reply = succession.vote_asked(job_.time.now(), request);
  if (reply.granted && !request.trial) {
    job_.note(id, "votes for {} in term {}", from, request.term);
    target.reset();
  }
  job_.send(id, from, reply);
}

void Process::on(const std::string& from, const VoteReply& reply) {
  if (gathering_) gathering_->heard(from);
  act(succession.vote_answered(job_.time.now(), from, reply));
}

void Process::on(const std::string&, const Elected& elected) {
  act(succession.announced(job_.time.now(), elected.server, elected.decides));
}

void Process::act(const SuccessionActions& actions) {
  for (const auto& action : actions) {
    if (const auto* ask = std::get_if<AskVotes>(&action)) {
      for (const auto& node : ask->nodes) job_.send(id, node, ask->request);
    } else if (const auto* probe = std::get_if<ProbeServer>(&action)) {
      job_.probe(id, probe->node);
    } else if (const auto* serve = std::get_if<ServeJob>(&action)) {
      job_.note(id, "is elected in term {}", serve->self.term);
      lease.emplace(job_.time.now(), serve->self, lease_bounds, succession.electorate());
      gathering_.emplace(gather_bounds);
      for (const auto& node : serve->living) gathering_->heard(node);
      target.reset();
      at_endpoint = false;
      next_beat_ = {};
      decided_ = false;
      round_.reset();
      if (job_.random.percent(20))
        outside_until_ = job_.time.now() + job_.random.duration(20ms, 800ms);  // it joins late
      for (const auto& node : serve->nodes) job_.send(id, node, Elected{serve->self});
    } else if (std::holds_alternative<TryEndpoint>(action)) {
      at_endpoint = true;
    } else if (const auto* follow = std::get_if<FollowServer>(&action)) {
      at_endpoint = false;
      target = follow->server;
      next_beat_ = {};
    }
  }
}

void Process::receive(const std::string& from, const Message& message) {
  std::visit([&](const auto& one) { on(from, one); }, message);
  end_given_up();
}

// It has given its server up, and acknowledges nothing of it any more.
void Process::end_given_up() {
  if (!succession.take_given_up()) return;
  follows_ = false;
  job_.gave_up(*this);
}

// ---- the job

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

}  // namespace

SuccessionOutcome run_succession_schedule(const SuccessionOptions& options) {
  return Job(options).run();
}

}  // namespace ddprun::testing
