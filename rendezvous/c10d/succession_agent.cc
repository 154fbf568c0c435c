#include "rendezvous/c10d/succession_agent.h"

#include <algorithm>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "common/loopback.h"
#include "rendezvous/hosting/endpoint.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds call_bound{400};
constexpr milliseconds announcement_interval{500};
constexpr milliseconds longest_endpoint_pause{2000};  // a server there sends nodes on for longer
constexpr milliseconds probe_pause{100};
constexpr milliseconds port_pause{1000};
constexpr int port_tries = 5;  // before a port counts as one that cannot be reached
constexpr int probes = 20;     // of a node whose session has ended: its process may take a moment to end

Succession::Time now() {
  return std::chrono::steady_clock::now();
}

// The nodes meet by addresses that they learn from their server, so that of one that is alone is of no use.
bool elects_servers(const JobPolicy& policy) {
  return policy.max_nodes > 1 && policy.may_be_replaced() && !policy.fixed_ranks;
}

}  // namespace

SuccessionAgent::SuccessionAgent(asio::io_context& loop, SuccessionAgentOptions options)
    : loop_(loop), options_(std::move(options)), target_(options_.endpoint), timer_(loop), announcement_(loop) {}

SuccessionAgent::~SuccessionAgent() {
  if (own_) own_->hub().on_succession({});
  if (endpoint_) endpoint_->hub().on_succession({});
}

void SuccessionAgent::begin(NodeInfo& self, const JobPolicy& policy) {
  if (!elects_servers(policy)) return;
  policy_ = policy;
  self_ = self.id;
  if (!own_) {
    try {
      const auto host = address_to_listen(self);
      own_host_ = host.empty() ? loopback_address() : host;
      own_ = std::make_unique<HostedEndpoint>(
          loop_,
          std::make_unique<StoreServer>(loop_, StoreServerOptions{.host = host, .admission = options_.admission}));
    } catch (const Error& error) {
      log::warn("this node takes no part in the election of another rendezvous server: {}", error.what());
      return;
    }
    own_->server().set_session_hub(this);
    own_->hub().on_succession(listener(true));
  }
  self.port = own_->port();
  if (succession_) return begin_again();
  succession_.emplace(Succession::Options{.self = self_,
                                          .support_bound = policy.support_bound(),
                                          .heartbeat_timeout = policy.heartbeat_timeout(),
                                          .survives_tie = options_.survives_tie});
  target_ = options_.endpoint;
}

// The node has left the job, and joins it again: what it has promised holds, and its server is where it was, or else at
// the endpoint.
void SuccessionAgent::begin_again() {
  if (succession_->serving() || succession_->searching()) return;
  if (!serves_first()) succession_->session_lost(now(), now());
  if (followed_) {
    target_ = followed_;
    pointed_ = true;
  }
  arm();
}

// Empty: all interfaces, as the address is not known at which the others dial this node.
std::string SuccessionAgent::address_to_listen(const NodeInfo& self) const {
  if (!self.address.empty()) return listen_address(self.address);
  const auto& host = options_.endpoint.host;
  return host == "localhost" || is_loopback_address(host) ? loopback_address() : "";
}

void SuccessionAgent::watch(HostedEndpoint& endpoint) {
  endpoint_ = &endpoint;
  endpoint_->hub().on_succession(listener(false));
}

// The server at the endpoint is in this process and serves the job, so this node follows no other.
bool SuccessionAgent::serves_first() const {
  return endpoint_ && succession_->server() && succession_->server()->node == self_ && !succession_->serving() &&
         endpoint_->hub().serves(policy_.run_id);
}

bool SuccessionAgent::awaits_election() const {
  return succession_ && succession_->searching() && !succession_->tries_endpoint();
}

HostedEndpoint* SuccessionAgent::serving() {
  return succession_ && succession_->serving() ? own_.get() : nullptr;
}

// elected: of the server at this agent's port, not of that at the endpoint.
SuccessionListener SuccessionAgent::listener(bool elected) {
  return {.node_lost =
              [this](const std::string& run_id, const std::string& node) {
                if (run_id == policy_.run_id) probe_lost(node, probes);
              },
          .deposed =
              [this, elected](const std::string& run_id) {
                if (run_id == policy_.run_id)
                  asio::post(loop_, [this, elected, alive = std::weak_ptr(alive_)] {
                    if (!alive.expired()) deposed(elected);
                  });
              }};
}

// ---- the session client

std::optional<HostPort> SuccessionAgent::target() {
  return target_;
}

bool SuccessionAgent::is_own(const HostPort& target) const {
  const bool own_port = own_ && target == HostPort{own_host_, own_->port()};
  return succession_ && (own_port || (target == options_.endpoint && options_.serves_endpoint()));
}

// An elected server stays the target of its own node. Others are told again where it is.
void SuccessionAgent::attempt_failed(const HostPort& target) {
  if (target_ != target || serving()) return;
  const bool searching = succession_ && succession_->searching();
  if (!searching || std::exchange(pointed_, false)) target_ = options_.endpoint;
}

bool SuccessionAgent::session_began(const ServerName& server, bool decides) {
  if (!succession_) return true;
  const bool named = !server.node.empty();
  if (named && !succession_->accepts(server, decides)) return false;
  followed_ = target_;
  pointed_ = false;
  succession_->session_began(named ? std::optional(server) : std::nullopt);
  arm();
  return true;
}

// Until the lease of the lost server ends, it may be found again where it was.
void SuccessionAgent::session_lost(Time heard) {
  if (!succession_ || serves_first()) return;
  act(succession_->session_lost(now(), heard));
  arm();
}

void SuccessionAgent::server_silent(Time heard) {
  if (!succession_ || serves_first()) return;
  act(succession_->server_silent(now(), heard));
  arm();
}

void SuccessionAgent::server_heard() {
  if (!succession_) return;
  succession_->server_heard();
  arm();
}

std::optional<ServerChoice::Time> SuccessionAgent::patience_ends() const {
  return succession_ ? succession_->patience_ends() : std::nullopt;
}

void SuccessionAgent::server_ends() {
  if (!succession_ || !succession_->server()) return;
  act(succession_->server_ended(now(), succession_->server()->node));
  arm();
}

void SuccessionAgent::moved(const HostPort& address) {
  pointed_ = true;
  aim(address);
}

void SuccessionAgent::adopt(const Round& round) {
  if (!succession_) return;
  NodeSet set{.version = round.electorate, .nodes = {}};
  for (const auto& member : round.members) {
    if (member.port == 0) continue;
    set.nodes.push_back(member.node_id);
    addresses_[member.node_id] = {.host = member.address, .port = member.port};
    if (member.node_id != self_ && tried_.insert(member.node_id).second) try_port(member.node_id, port_tries);
  }
  succession_->adopt(std::move(set), round.confirmed);
}

// A refusal at a port says that its process has ended only if the port can be reached otherwise.
void SuccessionAgent::try_port(const std::string& node, int tries) {
  call(node, [this, node, tries](const PeerAnswer& answer) {
    if (reached_.contains(node)) return;
    if (tries > 1) return after(port_pause, [this, node, tries] { try_port(node, tries - 1); });
    log::warn(
        "the port for elections of node {} cannot be reached from here ({}): if its agent is lost, this node learns of "
        "it by its silence alone",
        node, answer.kind == PeerAnswer::Kind::refused ? "connections are refused" : "no answer");
  });
}

void SuccessionAgent::confirm(ElectorateVersion version) {
  if (succession_) succession_->confirm(version);
}

ElectorateVersion SuccessionAgent::newest() const {
  return succession_ ? succession_->electorate().newest().version : ElectorateVersion();
}

// ---- actions

void SuccessionAgent::act(const SuccessionActions& actions) {
  for (const auto& action : actions) std::visit([this](const auto& one) { execute(one); }, action);
  const bool searches = succession_->searching() && succession_->may_vote(now());
  if (searches && !succession_->tries_endpoint() && target_ && target_ == followed_) aim(std::nullopt);
}

void SuccessionAgent::execute(const AskVotes& action) {
  for (const auto& node : action.nodes)
    call(node, NodeFrame{VoteAsked{policy_.run_id, action.request}}, [this, node](const PeerAnswer& answer) {
      try {
        const auto frame = decode_server_frame(answer.frame);
        if (const auto* reply = std::get_if<VoteReply>(&frame)) act(succession_->vote_answered(now(), node, *reply));
      } catch (const Error& error) {
        log::debug("node {} answered no vote: {}", node, error.what());
      }
      arm();
    });
}

void SuccessionAgent::execute(const ProbeServer& action) {
  probe(action.node, [this, node = action.node] {
    act(succession_->server_ended(now(), node));
    arm();
  });
}

void SuccessionAgent::execute(const ServeJob& action) {
  log::warn("this node serves the rendezvous from now on, at port {}: it was elected, since the server was lost",
            own_->port());
  own_->hub().serve_elected(policy_, action.self, succession_->electorate());
  for (const auto& node : action.living) heard(node);
  probe_lost(action.lost, probes);
  aim(HostPort{.host = own_host_, .port = own_->port()});
  announced_ = {};
  endpoint_pause_ = announcement_interval;
  announce();
}

void SuccessionAgent::execute(const FollowServer& action) {
  const auto found = addresses_.find(action.server.node);
  if (found == addresses_.end()) return;
  log::info("the rendezvous is served by node {} from now on, at {}", action.server.node,
            format_host_port(found->second.host, found->second.port_or(0)));
  followed_.reset();
  aim(found->second);
}

void SuccessionAgent::execute(const TryEndpoint&) {
  aim(options_.endpoint);
}

void SuccessionAgent::aim(std::optional<HostPort> target) {
  if (target_ == target) return;
  target_ = std::move(target);
  asio::post(loop_, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && changed_) changed_();
  });
}

// The other one goes on: a server at the endpoint that was started after the election is sent away by this agent too.
void SuccessionAgent::deposed(bool elected) {
  if (!succession_ || succession_->serving() != elected) return;
  act(succession_->stepped_down(now()));
  arm();
}

// The nodes that have not come learn of the server by this, and so does one that was started at the endpoint.
void SuccessionAgent::announce() {
  if (!serving()) return;
  const ServerElected elected{.run_id = policy_.run_id,
                              .server = *succession_->server(),
                              .decides = own_->hub().decides(policy_.run_id),
                              .port = own_->port()};
  const auto ignore = [](const PeerAnswer&) {};
  for (const auto& node : succession_->electorate().all_nodes())
    if (node != self_ && !own_->hub().has_session(policy_.run_id, node))
      call(node, NodeFrame{elected}, [this, node](const PeerAnswer& answer) { told(node, answer); });
  if (options_.endpoint.port_or(0) != 0 && now() >= announced_ + endpoint_pause_) {
    announced_ = now();
    endpoint_pause_ = std::min(2 * endpoint_pause_, longest_endpoint_pause);
    call_peer(loop_, options_.endpoint, encode(NodeFrame{elected}), options_.credentials, call_bound, ignore);
  }
  announcement_.run_after(announcement_interval, [this] { announce(); });
}

// The process of the node has sent a message: it may be on its way to the server here.
void SuccessionAgent::heard(const std::string& node) {
  if (serving()) own_->hub().node_lives(policy_.run_id, node);
}

void SuccessionAgent::told(const std::string& node, const PeerAnswer& answer) {
  if (has_ended(node, answer)) own_->hub().node_ended(policy_.run_id, node);
}

// ---- calls

void SuccessionAgent::call(const std::string& node, const NodeFrame& frame, Answered answered) {
  call(node, encode(frame), options_.credentials, std::move(answered));
}

// Without a frame it only connects.
void SuccessionAgent::call(const std::string& node, Answered answered) {
  call(node, "", nullptr, std::move(answered));
}

void SuccessionAgent::call(const std::string& node, std::string frame, std::shared_ptr<const Credentials> credentials,
                           Answered answered) {
  const auto found = addresses_.find(node);
  if (found == addresses_.end()) return;
  call_peer(loop_, found->second, std::move(frame), std::move(credentials), call_bound,
            [this, node, alive = std::weak_ptr(alive_), answered = std::move(answered)](const PeerAnswer& answer) {
              if (alive.expired()) return;
              if (answer.kind == PeerAnswer::Kind::answered) reached_.insert(node);
              if (!answer.frame.empty()) heard(node);
              answered(answer);
            });
}

void SuccessionAgent::probe(const std::string& node, std::function<void()> ended) {
  call(node, [this, node, ended = std::move(ended)](const PeerAnswer& answer) {
    if (has_ended(node, answer)) ended();
  });
}

void SuccessionAgent::probe_lost(const std::string& node, int tries) {
  probe(node, [this, node] {
    for (auto* server : {own_.get(), endpoint_})
      if (server) server->hub().node_ended(policy_.run_id, node);
  });
  if (tries > 1) after(probe_pause, [this, node, tries] { probe_lost(node, tries - 1); });
}

void SuccessionAgent::after(milliseconds pause, std::function<void()> what) {
  const auto timer = std::make_shared<asio::steady_timer>(loop_, pause);
  timer->async_wait([timer, what = std::move(what), alive = std::weak_ptr(alive_)](boost::system::error_code failure) {
    if (!failure && !alive.expired()) what();
  });
}

// Every event of Succession ends here.
void SuccessionAgent::arm() {
  if (succession_->take_given_up() && given_up_) given_up_();
  const auto due = succession_->next_tick();
  if (!due) return timer_.cancel(), void();
  timer_.run_at(*due, [this] {
    act(succession_->tick(now()));
    arm();
  });
}

// ---- sessions at this agent's port

void SuccessionAgent::on_open(SessionId session, const SessionPeer& peer) {
  opened_[session] = peer;
}

void SuccessionAgent::on_frame(SessionId session, std::string frame) {
  if (is_forwarded(session)) return own_->hub().on_frame(session, std::move(frame));
  auto& sender = own_->server().session_sender();
  const auto decoded = decode_node_frame(frame);
  if (const auto* asked = std::get_if<VoteAsked>(&decoded)) {
    VoteReply reply{.term = asked->request.term, .trial = asked->request.trial, .server = {}};
    if (asked->run_id == policy_.run_id) {
      heard(asked->request.candidate);
      reply = succession_->vote_asked(now(), asked->request);
    }
    sender.send(session, encode(ServerFrame{reply}));
    if (reply.granted && !asked->request.trial && !succession_->tries_endpoint()) aim(std::nullopt);
    arm();
  } else if (const auto* elected = std::get_if<ServerElected>(&decoded)) {
    if (elected->run_id == policy_.run_id) act(succession_->announced(now(), elected->server, elected->decides));
    sender.send(session, encode(ServerFrame{ServerBeat{}}));
    arm();
  } else if (serving()) {
    forwarded_.insert(session);
    own_->hub().on_open(session, opened_.at(session));
    return own_->hub().on_frame(session, std::move(frame));
  }
  sender.close(session);
}

void SuccessionAgent::on_close(SessionId session) {
  opened_.erase(session);
  if (forwarded_.erase(session) > 0) own_->hub().on_close(session);
}

std::string SuccessionAgent::refusal_of(std::string_view frame_head) {
  return own_->hub().refusal_of(frame_head);
}

}  // namespace ddprun
