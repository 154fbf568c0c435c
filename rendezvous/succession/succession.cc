#include "rendezvous/succession/succession.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds probe_interval{200};

void append(SuccessionActions& actions, SuccessionActions more) {
  for (auto& one : more) actions.push_back(std::move(one));
}

}  // namespace

void Succession::adopt(NodeSet next, ElectorateVersion confirmed) {
  if (std::ranges::find(next.nodes, options_.self) != next.nodes.end())
    electorate_.adopt(std::move(next), confirmed);
  else
    electorate_.confirm(confirmed);
}

void Succession::session_began(const std::optional<ServerName>& server) {
  if (phase_ == Phase::serving) return;
  const bool replaced = server && server_ && server->term == server_->term && *server != *server_;
  if (!server || server->term < term_ || replaced) {  // another job, as far as elections are concerned
    electorate_ = {};
    voted_for_.clear();
    term_ = 0;
  }
  phase_ = Phase::following;
  silent_ = given_up_ = false;
  heard_.clear();
  server_ = server;
  if (server) term_ = server->term;
  asking_.reset();
  elected_.reset();
  probe_at_.reset();
  stand_at_.reset();
  endpoint_at_.reset();
}

SuccessionActions Succession::session_lost(Time now, Time heard) {
  if (phase_ != Phase::following) return {};
  begin_search(now, heard + (elects_itself() ? options_.heartbeat_timeout : options_.support_bound));
  return act(now);
}

SuccessionActions Succession::server_silent(Time now, Time heard) {
  if (phase_ != Phase::following || silent_ || !server_) return {};
  silent_ = true;
  free_at_ = heard + options_.support_bound;
  stand_at_ = std::max(now, free_at_) + turn();
  return act(now);
}

void Succession::server_heard() {
  if (!std::exchange(silent_, false)) return;
  heard_.clear();
  asking_.reset();
  stand_at_.reset();
}

void Succession::give_server_up(Time now) {
  const auto asking = asking_;
  begin_search(now, free_at_);
  asking_ = asking;
  given_up_ = true;
}

SuccessionActions Succession::stepped_down(Time now) {
  if (phase_ != Phase::serving && phase_ != Phase::following) return {};
  heard_.clear();
  begin_search(now, now);
  ended_ = true;
  probe_at_.reset();
  return act(now);
}

// A node without part in an election finds a server at the endpoint alone.
void Succession::begin_search(Time now, Time free_at) {
  phase_ = Phase::searching;
  silent_ = false;
  free_at_ = free_at;
  ended_ = tries_endpoint_ = false;
  asking_.reset();
  elected_.reset();
  probe_at_ = now;
  stand_at_ = free_at + turn();
  endpoint_at_ = now + patience(std::max(now, free_at) - now);
}

// Returns how long to wait for an election, which can succeed this much later, before the endpoint is tried.
Succession::Duration Succession::patience(Duration later) const {
  const bool may_succeed = may_be_elected() && (electorate_.newest().nodes.size() > 2 || elects_itself());
  return may_succeed ? later + options_.heartbeat_timeout : Duration(0);
}

SuccessionActions Succession::server_ended(Time now, const std::string& node) {
  if (phase_ != Phase::searching || ended_ || !server_ || server_->node != node) return {};
  ended_ = true;
  probe_at_.reset();
  free_at_ = std::min(free_at_, now);
  if (!asking_ && stand_at_) stand_at_ = std::min(*stand_at_, now + turn());
  if (endpoint_at_) endpoint_at_ = now + patience(Duration(0));
  return act(now);
}

// ---- votes

VoteReply Succession::vote_asked(Time now, const VoteRequest& request) {
  VoteReply reply{.term = request.term, .trial = request.trial, .granted = false, .voted = term_, .server = {}};
  if (searching() || silent_) heard_.insert(request.candidate);
  if (!searching()) reply.server = server_;
  const bool open = request.term > term_ || (request.term == term_ && voted_for_ == request.candidate);
  if (!may_vote(now) || !open || request.newest < electorate_.newest().version) return reply;
  reply.granted = true;
  if (request.trial) return reply;
  if (silent_) give_server_up(now);
  term_ = request.term;
  voted_for_ = request.candidate;
  reply.voted = term_;
  asking_.reset();
  stand_at_ = now + 2 * options_.answer_bound + turn();
  return reply;
}

SuccessionActions Succession::vote_answered(Time now, const std::string& node, const VoteReply& reply) {
  if (!searching() && !silent_) return {};
  heard_.insert(node);
  if (reply.server)
    if (auto actions = consider(now, *reply.server, false); !actions.empty()) return actions;
  if (!asking_ || reply.term != asking_->term || reply.trial != asking_->trial) return {};
  if (!reply.granted && reply.voted >= asking_->term) {  // that term is over
    if (searching()) term_ = std::max(term_, reply.voted);
    asking_.reset();
    stand_at_ = now + options_.turn + turn();
    return {};
  }
  answers_.insert(node);
  if (reply.granted) votes_.insert(node);
  auto actions = count_votes(now);
  if (!actions.empty() || !asking_) return actions;
  const auto asked = others();
  if (std::ranges::all_of(asked, [&](const auto& one) { return answers_.contains(one); })) {
    asking_.reset();
    stand_at_ = now + options_.turn + turn();
  }
  return {};
}

SuccessionActions Succession::announced(Time now, const ServerName& server, bool decides) {
  return searching() || silent_ ? consider(now, server, decides) : SuccessionActions();
}

// The server that this node has lost may live, for others; a later one has taken its place. A node that has voted in a
// later term does not follow it: the candidate of that term may be elected. One that knows of a newer set than the
// server does neither: without such nodes a server gets no majority that has not heard of a confirmed set.
SuccessionActions Succession::consider(Time now, const ServerName& server, bool decides) {
  const bool earlier = server_ && server.term <= server_->term;
  const bool knows_less = server.term < term_ || server.inherited < electorate_.newest().version;
  if (server.node == options_.self || earlier || (knows_less && !(decides && tries_endpoint_))) return {};
  if (!may_vote(now)) {
    elected_ = server;
    return {};
  }
  if (silent_) give_server_up(now);
  elected_.reset();
  asking_.reset();
  if (knows_less) return {FollowServer{server}};  // as one that finds it at the endpoint
  term_ = server.term;
  electorate_.begin_term(server.term, server.inherited == electorate_.newest().version);
  server_ = server;
  ended_ = false;
  probe_at_ = now + probe_interval;
  stand_at_ = now + 4 * options_.answer_bound + turn();
  endpoint_at_ = now + options_.heartbeat_timeout;
  return {FollowServer{server}};
}

SuccessionActions Succession::stand(Time now, bool trial) {
  asking_ = VoteRequest{.candidate = options_.self,
                        .term = term_ + (trial ? 1 : 0),
                        .newest = electorate_.newest().version,
                        .trial = trial};
  votes_ = answers_ = {options_.self};
  stand_at_ = now + options_.answer_bound + turn();
  auto actions = count_votes(now);
  if (actions.empty() && asking_) actions.emplace_back(AskVotes{others(), *asking_});
  return actions;
}

SuccessionActions Succession::count_votes(Time now) {
  const bool tie = searching() && elects_itself();
  const auto supports = [&](const std::string& node) { return votes_.contains(node); };
  const bool majority = electorate_.elects(supports);
  if (!majority && !tie) return {};
  if (asking_->trial) {
    if (silent_) give_server_up(now);
    term_ = asking_->term;
    voted_for_ = options_.self;
    return stand(now, false);
  }
  phase_ = Phase::serving;
  const auto lost = server_->node;
  server_ = ServerName{.node = options_.self, .term = asking_->term, .inherited = electorate_.newest().version};
  if (majority)
    electorate_.begin_term(term_, true);
  else
    electorate_ = alone_in(term_);
  asking_.reset();
  stand_at_.reset();
  endpoint_at_.reset();
  probe_at_.reset();
  return {ServeJob{*server_, others(), lost, std::exchange(heard_, {})}};
}

// The node that survives a tie goes on without the other one.
Electorate Succession::alone_in(std::uint64_t term) const {
  Electorate electorate;
  electorate.adopt({.version = {term, 1}, .nodes = {options_.self}}, {});
  electorate.confirm({term, 1});
  return electorate;
}

// With earlier sets, or a server that is no node of the set, the other nodes may elect one of them.
// A server that lacks the support of this node alone may decide until its patience ends.
bool Succession::elects_itself() const {
  return options_.survives_tie && electorate_.complete() && server_ && server_->node != options_.self &&
         electorate_.all_nodes() == std::set<std::string>{options_.self, server_->node};
}

bool Succession::may_be_elected() const {
  const auto nodes = electorate_.newest().nodes;
  return electorate_.complete() && server_ && std::ranges::find(nodes, options_.self) != nodes.end();
}

// The nodes after the lost server, by rank.
Succession::Duration Succession::turn() const {
  int before = 0;
  for (const auto& node : electorate_.newest().nodes) {
    if (node == options_.self) break;
    if (!server_ || node != server_->node) ++before;
  }
  return before * options_.turn;
}

std::vector<std::string> Succession::others() const {
  auto nodes = electorate_.all_nodes();
  nodes.erase(options_.self);
  return {nodes.begin(), nodes.end()};
}

// ---- time

SuccessionActions Succession::tick(Time now) {
  return act(now);
}

SuccessionActions Succession::act(Time now) {
  if (!searching() && !silent_) return {};
  SuccessionActions actions;
  if (elected_ && may_vote(now)) return consider(now, *std::exchange(elected_, std::nullopt), false);
  if (probe_at_ && now >= *probe_at_) {
    probe_at_ = now + probe_interval;
    if (server_ && server_->node != options_.self) actions.emplace_back(ProbeServer{server_->node});
  }
  if (stand_at_ && now >= *stand_at_ && may_vote(now)) {
    if (may_be_elected())
      append(actions, stand(now, true));
    else
      stand_at_.reset();
  }
  if (endpoint_at_ && now >= *endpoint_at_ && searching()) {
    endpoint_at_.reset();
    tries_endpoint_ = true;
    actions.emplace_back(TryEndpoint{});
  }
  return actions;
}

std::optional<Succession::Time> Succession::next_tick() const {
  if (!searching() && !silent_) return std::nullopt;
  std::optional<Time> next;
  for (const auto& timer : {probe_at_, stand_at_, endpoint_at_})
    if (timer && (!next || *timer < *next)) next = timer;
  if (elected_ && (!next || free_at_ < *next)) next = free_at_;
  return next;
}

}  // namespace ddprun
