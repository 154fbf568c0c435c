#include "tests/simulation/election_process.h"

#include <algorithm>
#include <utility>

#include "tests/simulation/election_job.h"

namespace ddprun::testing::election {
namespace {

using namespace std::chrono_literals;

constexpr auto heartbeat_timeout = 1000ms;
constexpr auto beat_interval = 200ms;
constexpr auto support_bound = 2 * beat_interval;
constexpr LeaseBounds lease_bounds{.support = support_bound - beat_interval / 4,
                                   .patience = heartbeat_timeout - beat_interval / 2};
constexpr GatherBounds gather_bounds{.any = 60ms, .living = (heartbeat_timeout - support_bound) / 4};

}  // namespace

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
      heard_(job.time.now()),
      suspicion_(support_bound) {}

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
  tell_confirmed();
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

void Process::tell_confirmed() {
  const auto confirmed = lease->take_confirmed();
  if (!confirmed) return;
  job_.confirmed(*this, *confirmed);
  succession.confirm(*confirmed);
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
  tell_confirmed();
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
  tell_confirmed();
}

void Process::on(const std::string& from, const Probed&) {
  if (lease) {
    lease->ended(job_.time.now(), from);
    tell_confirmed();
  }
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

}  // namespace ddprun::testing::election
