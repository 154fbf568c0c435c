#include "rendezvous/membership/session_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <csignal>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "common/deadline.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/printable.h"
#include "common/stall_aware_clock.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/membership/worker_names.h"
#include "rendezvous/store/async_authenticate.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/host_lookup.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;
using boost::system::error_code;

using Clock = std::chrono::steady_clock;
constexpr auto awaited = asio::as_tuple(asio::use_awaitable);
constexpr auto attempt_timeout = 10s;       // from the name lookup to the server's first frame
constexpr auto longest_probe = 200ms;       // for the answer of a server that seems to be silent
constexpr auto silence_interval = 50ms;     // at which a silent server is looked at
constexpr auto first_report_delay = 500ms;  // a server usually starts within this time: no log line before

std::int64_t wall_clock_us() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace

// One join(): from the first dial to the end of the last session. Its coroutine keeps it alive; stop() ends that.
class SessionClient::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::io_context& loop, SessionClientOptions options, NodeInfo self, JobPolicy policy, Handler handler,
          RelayHandlers relay, std::function<bool()> workers_wait)
      : options_(std::move(options)),
        endpoint_(format_host_port(options_.host, options_.port)),
        self_(std::move(self)),
        policy_(std::move(policy)),
        handler_(std::move(handler)),
        relay_(std::move(relay)),
        workers_wait_(std::move(workers_wait)),
        loop_(loop),
        socket_(loop),
        lookup_(loop),
        watchdog_(loop),
        beat_timer_(loop),
        silence_timer_(loop),
        pause_(loop),
        lease_timer_(loop),
        liveness_clock_(policy_.keep_alive_interval),
        began_(Deadline::Clock::now()),
        join_deadline_(Deadline::in(policy_.join_timeout)) {}

  void start() {
    if (options_.choice) options_.choice->begin(self_, policy_);
    asio::co_spawn(loop_, run(shared_from_this()), asio::detached);
  }

  void ready(std::int64_t generation, std::uint16_t worker_store_port) {
    store_port_ = worker_store_port;
    send(SessionReady{generation, worker_store_port});
  }

  void redial() {
    if (closed_ || established_) return;
    pause_.cancel();
    if (dialling_) drop_connection();
  }

  void give_server_up() {
    if (established_ && !closed_ && !end_reason_)
      end_session(fmt::format("no message for {}, as at most nodes", duration_text(silence())));
  }

  // Until the lease ends, JOIN says that this node's workers run.
  void keep_round(bool done) {
    if (!round_) return;
    kept_ = true;
    done_ = done;
    lease_timer_.expires_at(lease_end_);
    lease_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self && self->kept_ && !self->closed_) self->end_lease();
    });
  }

  // A server that has been told that the workers run learns the contrary by another JOIN.
  void give_up_round() {
    if (!kept_) return;
    end_round();
    if (established_ && !closed_ && !end_reason_)
      end_session("the workers of this node have stopped");
    else if (!established_)
      drop_connection();
  }

  void stop() {
    handler_ = nullptr;
    relay_ = {};
    close();
  }

  void send(const NodeFrame& frame) {
    if (!established_ || closed_) return;
    write(rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(frame)})));
  }

  bool has_session() const { return established_ && !closed_ && !end_reason_; }

  // Without a session no server knows of this node, so it decides by itself.
  void request_stop(const std::string& who) {
    if (closed_) return;
    if (established_) return send(StopRequest{.who = who});
    asio::post(loop_, [self = shared_from_this(), who] {
      if (self->closed_) return;
      self->close();
      self->emit(JobEnded{{.exit_code = exit_for_signal(SIGTERM), .reason = "stopped by " + who}});
    });
  }

  // The owner may exit right after this, so the frame is written now if the socket accepts it.
  void leave(const std::string& reason) {
    handler_ = nullptr;
    relay_ = {};
    if (established_ && !closed_ && outgoing_.empty()) {
      const std::string bytes = sealed(
          rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(NodeFrame{SessionLeave{reason}})})));
      error_code ignored;
      socket_.non_blocking(true, ignored);
      socket_.write_some(asio::buffer(bytes), ignored);
    }
    close();
  }

 private:
  // The parameter keeps this object alive as long as the coroutine's frame.
  asio::awaitable<void> run(std::shared_ptr<Session>) {
    Backoff backoff;
    std::minstd_rand random{std::random_device{}()};
    while (!closed_) {
      const std::string problem = co_await attempt();
      if (closed_) co_return;
      if (established_) {
        if (!may_rejoin()) co_return fail(Errc::connection_lost, lost_text(problem));
        begin_rejoin(problem);
        backoff = Backoff();
      } else {
        if (refused_too_long()) co_return fail(Errc::usage, fmt::format("{}: {}", endpoint_, problem));
        if (may_be_torch_store() && co_await is_torch_store()) co_return fail(Errc::usage, torch_store_text());
        if (closed_) co_return;
        if (join_deadline_.expired()) co_return give_up(problem);
        report_waiting(problem);
        pause_.expires_at(*earlier(Deadline::in(next_pause(backoff.next(random))), join_deadline_).when());
        co_await pause_.async_wait(awaited);
      }
      if (!closed_ && options_.before_retry) options_.before_retry();
    }
  }

  // All nodes have to be back within the lease, so they ask often.
  Clock::duration next_pause(Clock::duration backoff) const {
    constexpr auto longest_while_kept = 200ms;
    return kept_ ? std::min<Clock::duration>(backoff, longest_while_kept) : backoff;
  }

  // PyTorch's store server knows no authentication.
  bool may_be_torch_store() const { return connected_ && !timed_out_ && !options_.credentials; }

  bool refused_too_long() {
    if (!refused_) {
      refused_since_.reset();
      return false;
    }
    if (!refused_since_) refused_since_ = Deadline::Clock::now();
    return Deadline::Clock::now() - *refused_since_ >= options_.refusal_patience;
  }

  // ---- rejoining

  bool may_rejoin() const { return options_.rejoin_timeout.count() > 0 && policy_.may_be_replaced(); }

  // Another server may answer at the endpoint then, so JOIN carries the round that this node was in.
  void begin_rejoin(const std::string& problem) {
    established_ = false;
    end_reason_.reset();
    began_ = Deadline::Clock::now();
    lost_reason_ = lost_text(problem);
    if (round_)
      self_.former = FormerRound{.generation = round_->generation,
                                 .group_rank = round_->self,
                                 .restarts_used = round_->restarts_used,
                                 .nodes = 0,
                                 .first = {},
                                 .master_addr = {},
                                 .workers = {}};
    const auto lease = next_lease();
    const bool server_ended = std::exchange(server_ends_, false);
    join_deadline_ = Deadline::in(std::max<Clock::duration>(options_.rejoin_timeout, lease));
    emit(ContactBroken{
        .text = fmt::format("{}; trying to rejoin for {}", lost_reason_, duration_text(options_.rejoin_timeout)),
        .lease = lease,
        .server_ended = server_ended});
    if (!options_.choice || closed_) return;
    options_.choice->session_lost(heard_at_);
    if (server_ended) options_.choice->server_ends();
    if (const auto until = options_.choice->patience_ends()) extend_to(*until);
  }

  void extend_to(Clock::time_point until) {
    if (join_deadline_.when() && *join_deadline_.when() < until) join_deadline_ = Deadline::at(until);
  }

  // Returns the time for which the workers may go on. A round that no server has resumed has the rest of its lease.
  std::chrono::milliseconds next_lease() {
    const bool kept = std::exchange(kept_, false);
    if (std::exchange(in_round_, false))
      lease_end_ = known_at_ + policy_.heartbeat_timeout();
    else if (!kept)
      lease_end_ = {};
    lease_timer_.cancel();
    return std::max(0ms, std::chrono::duration_cast<std::chrono::milliseconds>(lease_end_ - Clock::now()));
  }

  // The round goes on no more in this node, whatever happens to the session.
  void end_round() {
    in_round_ = kept_ = false;
    lease_timer_.cancel();
  }

  // An attempt that has not been answered may have told a server that the workers run.
  void end_lease() {
    end_round();
    if (established_) return end_session("not all nodes of the round were back in time for the workers to go on");
    drop_connection();
    emit(ContactBroken{fmt::format("{}; no server was back in time for the workers to go on", lost_reason_)});
  }

  NodeInfo self_for_join() const {
    auto self = self_;
    self.serves = self.port != 0 && own_;
    if (!kept_) return self;
    self.former->nodes = static_cast<int>(round_->members.size());
    self.former->first = round_->members.front().node_id;
    self.former->master_addr = round_->master_addr;
    self.former->master_port = round_->master_port;
    self.former->group_generation = round_->group_generation;
    self.former->workers = round_->members.at(static_cast<std::size_t>(round_->self)).workers;
    self.former->store_port = store_port_;
    self.former->done = done_;
    return self;
  }

  void give_up(const std::string& problem) {
    if (lost_reason_.empty()) return fail(Errc::timeout, unreachable_text(problem));
    fail(Errc::connection_lost, fmt::format("{}; it did not come back within {} (--rdzv_conf=store_timeout)",
                                            lost_reason_, duration_text(options_.rejoin_timeout)));
  }

  // Dials once and runs the session to its end. Returns why it ended or failed to open.
  asio::awaitable<std::string> attempt() {
    if (options_.choice) {
      const auto target = options_.choice->target();
      if (!target) {
        connected_ = refused_ = false;
        co_return last_problem_ = "the agents of the job elect another server";
      }
      target_ = *target;
      own_ = options_.choice->is_own(target_);
    }
    dialling_ = true;
    const auto problem = co_await dial();
    dialling_ = false;
    if (!established_ && options_.choice && !closed_) options_.choice->attempt_failed(target_);
    co_return problem;
  }

  asio::awaitable<std::string> dial() {
    socket_ = tcp::socket(loop_);
    ++attempts_;
    timed_out_ = connected_ = unresolved_ = refused_ = may_have_successor_ = false;
    end_reason_.reset();
    channel_.reset();
    set_watchdog();
    const std::string problem = co_await serve();
    end_attempt();
    // If the join deadline cut this attempt short, the cause of the previous one is more useful.
    if (!timed_out_) {
      last_problem_ = problem;
    } else if (last_problem_.empty() || !join_deadline_.expired()) {
      last_problem_ = unresolved_  ? rendezvous::unanswered_lookup_text(options_.host)
                      : connected_ ? "it accepts the connection but does not answer"
                                   : "no answer";
    } else {
      co_return last_problem_;
    }
    name_problem_ = unresolved_;
    co_return last_problem_;
  }

  // An unanswered JOIN is withdrawn by a reset: a server that read it after the next JOIN would take it for a rejoin.
  void drop_connection() {
    error_code ignored;
    if (!established_) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
  }

  asio::awaitable<std::string> serve() {
    if (auto problem = co_await connect(); !problem.empty()) co_return problem;
    if (closed_) co_return "";
    connected_ = true;
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    outgoing_.clear();
    if (auto problem = co_await authenticate(); !problem.empty() || closed_) co_return problem;
    std::string hello = rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{}));
    hello += rendezvous::encode(
        rendezvous::Request(rendezvous::SessionRequest{encode(NodeFrame{SessionJoin{self_for_join(), policy_}})}));
    unanswered_ = {Clock::now()};
    write(std::move(hello));
    co_return co_await read();
  }

  // Returns the problem; empty on success.
  asio::awaitable<std::string> authenticate() {
    channel_.reset();
    if (!options_.credentials || within_process_) co_return "";
    try {
      channel_ = co_await rendezvous::async_authenticate(socket_, *options_.credentials);
      co_return "";
    } catch (const AuthenticationError& e) {
      refused_ = true;
      co_return e.what();
    } catch (const Error& e) {
      co_return e.what();
    }
  }

  // Returns whether PyTorch's store server is at the endpoint. It closes a connection that sends SESSION, as does a
  // ddprun server that shuts down, so the two are told apart by the reply to a CHECK of probe_key.
  asio::awaitable<bool> is_torch_store() {
    socket_ = tcp::socket(loop_);
    ++attempts_;
    set_watchdog();
    const bool result = co_await probe();
    end_attempt();
    co_return result;
  }

  asio::awaitable<bool> probe() {
    using namespace rendezvous;
    if (!(co_await connect()).empty()) co_return false;
    const std::string_view keys[] = {probe_key};
    // PyTorch's server requires VALIDATE in one piece.
    const std::string hello = encode(Request(ValidateRequest{}));
    const std::string requests = encode(Request(PingRequest{})) + encode(Request(CheckRequest{keys}));
    for (const auto* bytes : {&hello, &requests}) {
      const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(*bytes), awaited);
      if (error) co_return false;
    }
    std::array<char, sizeof(std::uint32_t) + 1> reply{};
    const auto [error, size] = co_await asio::async_read(socket_, asio::buffer(reply), awaited);
    constexpr std::array<char, sizeof reply> missing = {0, 0, 0, 0, 1};
    co_return !error && reply == missing;
  }

  // Returns the problem; empty on success.
  asio::awaitable<std::string> connect() {
    if (connect_within_process()) co_return "";
    const auto addresses = co_await lookup_.resolve(target_.host, target_.port_or(0));
    if (!addresses) co_return "no answer";
    unresolved_ = addresses->found.empty();
    if (unresolved_) co_return addresses->problem;
    if (options_.on_addresses && target_.host == options_.host) options_.on_addresses(texts(*addresses));
    const auto endpoints = rendezvous::tcp_endpoints(*addresses);
    const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited);
    co_return failure ? failure.message() : "";
  }

  // In a job of several nodes the server has to see the address from which this node comes.
  bool connect_within_process() {
    within_process_ = false;
    if (policy_.max_nodes > 1 || !options_.within_process) return false;
    auto connection = options_.within_process();
    if (!connection) return false;
    socket_.assign(tcp::v4(), connection.release());  // Asio only reads and writes the descriptor
    return within_process_ = true;
  }

  static std::vector<std::string> texts(const rendezvous::HostAddresses& addresses) {
    std::vector<std::string> texts;
    for (const auto& address : addresses.found) texts.push_back(address.text());
    return texts;
  }

  asio::awaitable<std::string> read() {
    rendezvous::FrameParser parser;
    std::array<char, 16384> chunk;
    while (!closed_) {
      const auto [error, size] = co_await socket_.async_read_some(asio::buffer(chunk), awaited);
      if (closed_) co_return "";
      if (end_reason_) co_return *end_reason_;
      if (error == asio::error::eof)
        co_return established_ ? "it closed the connection" : "it closed the connection without opening a session";
      if (error) co_return error.message();
      std::string_view text;
      try {
        text = opened({chunk.data(), size});
      } catch (const Error& broken) {
        co_return broken.what();
      }
      try {
        parser.feed(text);
        while (auto bytes = closed_ || end_reason_ ? std::nullopt : parser.next())
          handle_frame(decode_server_frame(*bytes));
      } catch (const Error& broken) {
        fail(broken.code(), established_ ? lost_text(broken.what()) : not_a_server_text(text));
      }
      if (end_reason_) co_return *end_reason_;
    }
    co_return "";
  }

  // ---- frames from the server

  void handle_frame(ServerFrame frame) {
    if (std::holds_alternative<ServerMoved>(frame)) return handle(std::get<ServerMoved>(std::move(frame)));
    if (const auto* server = std::get_if<SessionServer>(&frame); server && !follows(*server)) return;
    if (!established_ && options_.choice && !std::holds_alternative<SessionServer>(frame))
      options_.choice->session_began({}, true);
    if (!established_) start_heartbeats();
    heard_at_ = Clock::now();
    if (std::exchange(silent_, false)) options_.choice->server_heard();
    liveness_clock_.advance(StallAwareClock::Clock::now());
    last_heard_ = liveness_clock_.elapsed();
    std::visit([this](auto& one) { handle(std::move(one)); }, frame);
  }

  // A server that is not followed hears nothing of this node.
  bool follows(const SessionServer& server) {
    if (!options_.choice || options_.choice->session_began(server.name, server.decides)) return true;
    end_reason_ = "this node has voted for another server";
    return false;
  }

  void handle(ServerBeat&& frame) {
    record_answer();
    acknowledge(frame.sent_us);
  }
  void handle(SessionServer&& frame) {
    may_have_successor_ = true;
    server_node_ = frame.name.node;
    acknowledge(frame.sent_us);
  }
  void handle(ServerMoved&& frame) {
    end_reason_ = fmt::format("another server was elected, at {}",
                              format_host_port(frame.address.host, frame.address.port_or(0)));
    if (options_.choice) options_.choice->moved(frame.address);
  }
  void handle(ElectorateConfirmed&& frame) {
    if (options_.choice) options_.choice->confirm(frame.version);
  }
  void handle(VoteReply&&) {}  // only sent to VoteAsked
  void acknowledge(std::int64_t sent_us) {
    seen_us_ = sent_us;
    if (options_.choice && may_have_successor_)
      send(SessionSeen{.sent_us = sent_us, .known = options_.choice->newest()});
  }
  void adopt(const Round& round) {
    if (!options_.choice || round.electorate == ElectorateVersion()) return;
    options_.choice->adopt(round);
    acknowledge(seen_us_);
  }
  // The nodes of the round that goes on are those that this node knows, or some of them.
  void adopt(const RoundResumed& resumed) {
    Round round = *round_;
    round.electorate = resumed.electorate.version;
    round.confirmed = resumed.confirmed;
    const auto& nodes = resumed.electorate.nodes;
    std::erase_if(round.members, [&](const auto& one) { return std::ranges::find(nodes, one.node_id) == nodes.end(); });
    if (round.members.size() == nodes.size()) adopt(round);
  }
  void handle(RequestAnswer&&) {}  // only sent to status and stop requests
  void handle(JoinRefused&& frame) { fail(Errc::usage, frame.text); }
  void handle(NodeDropped&& frame) {
    if (!frame.may_return || !may_rejoin()) return fail(Errc::peer_lost, frame.text);
    end_round();
    end_reason_ = frame.text;
  }
  // Where the server's node has the workers' store, too, the round ends with it.
  void handle(SessionShutdown&& frame) {
    if (round_ && round_->members.front().node_id == server_node_) end_round();
    end_reason_ = fmt::format("it shuts down ({})", frame.reason);
    server_ends_ = true;
  }
  void handle(RendezvousWaiting&& frame) { emit(std::move(frame)); }
  void handle(RoundProposed&& frame) {
    const auto self = static_cast<std::size_t>(frame.round.self);
    if (frame.round.members.at(self).node_id != self_.id)
      throw make_error(Errc::protocol, "generation {} identifies this node as {}", frame.round.generation,
                       frame.round.members[self].host);
    round_ = frame.round;
    store_port_ = 0;
    end_round();
    adopt(frame.round);
    emit(std::move(frame));
  }
  void handle(SessionStarted&& frame) {
    if (!round_ || round_->generation != frame.generation) return;
    round_->master_addr = std::move(frame.master_addr);
    round_->master_port = frame.master_port;
    for (auto& member : round_->members) name_workers(member, round_->group_generation);
    in_round_ = true;
    emit(RoundStarted{*round_});
  }
  void handle(RoundChanged&& frame) {
    const auto self = static_cast<std::size_t>(frame.round.self);
    if (frame.round.members.at(self).node_id != self_.id)
      throw make_error(Errc::protocol, "a change of generation {} identifies this node as {}", frame.round.generation,
                       frame.round.members[self].host);
    round_ = frame.round;
    if (frame.joins(round_->self)) store_port_ = 0;
    end_round();
    in_round_ = true;
    adopt(frame.round);
    emit(std::move(frame));
  }
  void handle(WorkersRecoverable&& frame) { emit(frame); }
  void handle(RoundResumed&& frame) {
    if (!kept_ || round_->generation != frame.generation) return;
    end_round();
    in_round_ = true;
    adopt(frame);
    emit(std::move(frame));
  }
  void handle(StandbyAsked&& frame) { emit(frame); }
  void handle(RecoveryAsked&& frame) { emit(std::move(frame)); }
  void handle(WorkersReplaced&& frame) {
    if (!round_ || round_->generation != frame.generation) return;
    round_->restarts_used = frame.restarts_used;  // a rejoin reports all of it
    round_->group_generation = frame.group_generation;
    rename_replaced(*round_, frame);
    emit(std::move(frame));
  }
  void handle(ReplacementRefused&& frame) {
    if (round_ && round_->generation == frame.generation) end_round();
    emit(std::move(frame));
  }
  void handle(LeaveAnswered&& frame) { emit(std::move(frame)); }
  void handle(JobEnded&& frame) {
    close();
    emit(std::move(frame));
  }
  template <class Message>
  requires std::constructible_from<RelayMessage, Message>
  void handle(Message&& message) {
    if (const auto received = relay_.received) received(RelayMessage(std::forward<Message>(message)));
  }

  // The handler may call or destroy the owner.
  void emit(RendezvousEvent event) {
    if (const Handler handler = handler_) handler(std::move(event));
  }

  void fail(Errc code, const std::string& text) {
    close();
    emit(ContactLost{Error(code, text)});
  }

  void close() {
    closed_ = true;
    end_attempt();
    pause_.cancel();
    lease_timer_.cancel();
  }

  void end_attempt() {
    drop_connection();
    lookup_.cancel();
    watchdog_.cancel();
    beat_timer_.cancel();
    silence_timer_.cancel();
  }

  // ---- time

  void set_watchdog() {
    watchdog_.expires_at(*earlier(Deadline::in(attempt_timeout), join_deadline_).when());
    watchdog_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->timed_out_ = true;
      self->unresolved_ = self->lookup_.pending();
      self->lookup_.cancel();
      self->drop_connection();
    });
  }

  void start_heartbeats() {
    established_ = true;
    record_answer();
    watchdog_.cancel();
    liveness_clock_.advance(StallAwareClock::Clock::now());
    last_heard_ = liveness_clock_.elapsed();
    schedule_heartbeat();
    silent_ = false;
    if (options_.choice) watch_silence(policy_.support_bound() - probe_bound());
    if (const auto connected = relay_.connected) connected();
  }

  std::chrono::milliseconds silence() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - heard_at_);
  }

  std::chrono::milliseconds probe_bound() const {
    return std::min<std::chrono::milliseconds>(longest_probe, policy_.support_bound() / 4);
  }

  void watch_silence(Clock::duration pause) {
    silence_timer_.expires_after(pause);
    silence_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self && self->has_session()) self->check_silence();
    });
  }

  // A server that seems to be silent is asked once more: this process may not have read what has come.
  void check_silence() {
    const bool waits = workers_wait_ && workers_wait_();
    const auto bound =
        std::max(policy_.support_bound(), waits ? 0ms : policy_.heartbeat_timeout() - policy_.keep_alive_interval);
    if (may_have_successor_ && !silent_ && silence() >= bound - probe_bound()) {
      if (probed_ == heard_at_) {
        silent_ = true;
        options_.choice->server_silent(heard_at_);
      } else {
        probed_ = heard_at_;
        beat();
        return watch_silence(probe_bound());
      }
    }
    const auto left = policy_.support_bound() - probe_bound() - silence();
    watch_silence(left > 0ms ? left : silence_interval);
  }

  void schedule_heartbeat() {
    const StallAwareClock::Duration left = last_heard_ + heartbeat_timeout() - liveness_clock_.elapsed();
    const bool last = liveness_clock_.reliable() && left < policy_.keep_alive_interval;
    beat_timer_.expires_after(last ? left : policy_.keep_alive_interval);
    beat_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self && !self->closed_) self->send_heartbeat();
    });
  }

  std::chrono::milliseconds heartbeat_timeout() const { return policy_.heartbeat_timeout(); }

  // The server answers JOIN and each heartbeat, in their order: it knew this node when that was sent.
  void record_answer() {
    if (unanswered_.empty()) return;
    known_at_ = unanswered_.front();
    unanswered_.pop_front();
  }

  void send_heartbeat() {
    liveness_clock_.advance(StallAwareClock::Clock::now());
    if (liveness_clock_.reliable() && liveness_clock_.elapsed() - last_heard_ >= heartbeat_timeout())
      return end_session(fmt::format("no heartbeat for {}", duration_text(heartbeat_timeout())));
    beat();
    schedule_heartbeat();
  }

  void beat() {
    unanswered_.push_back(Clock::now());
    send(SessionBeat{});
  }

  // Ends the session from this side; the reader's coroutine then rejoins.
  void end_session(const std::string& why) {
    end_reason_ = why;
    error_code ignored;
    socket_.close(ignored);
  }

  // ---- writing

  // Returns the text as it is sent: encrypted if there is a channel.
  std::string sealed(std::string text) {
    if (!channel_) return text;
    channel_->write(text);
    return channel_->take_output();
  }

  // Returns the received text, decrypted if there is a channel. It is valid until the next call.
  std::string_view opened(std::string_view bytes) {
    if (!channel_) return bytes;
    opened_.clear();
    channel_->feed(bytes);
    channel_->read(opened_);
    return opened_;
  }

  void write(std::string bytes) {
    outgoing_.push_back(sealed(std::move(bytes)));
    if (outgoing_.size() == 1) write_next();
  }

  void write_next() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = shared_from_this(), attempt = attempts_](error_code error, std::size_t) {
                        if (error || self->closed_ || attempt != self->attempts_) return;  // the reader gets the error
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) self->write_next();
                      });
  }

  // ---- messages

  void report_waiting(const std::string& problem) {
    const auto elapsed = Deadline::Clock::now() - began_;
    if (elapsed < first_report_delay || problem == reported_problem_ || !lost_reason_.empty()) return;
    reported_problem_ = problem;
    emit(RendezvousWaiting{fmt::format("no rendezvous server at {} yet ({}); trying for up to {}", endpoint_, problem,
                                       duration_text(policy_.join_timeout))});
  }

  std::string unreachable_text(const std::string& problem) const {
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - began_);
    if (name_problem_)
      return fmt::format(
          "{} within {}, so the rendezvous endpoint {} cannot be reached: check the name and this host's "
          "/etc/resolv.conf and /etc/hosts, or give a numeric address",
          problem, duration_text(elapsed), endpoint_);
    return fmt::format(
        "no rendezvous server answered at {} within {} ({}). The agent on host {} serves it: check that it runs with "
        "the same endpoint, that the name is right, and that the port can be reached from here",
        endpoint_, duration_text(elapsed), problem, options_.host);
  }

  std::string torch_store_text() const {
    return fmt::format(
        "the store at {} is served by torchrun or PyTorch, whose c10d rendezvous ddprun cannot join: start ddprun on "
        "every node, or set --rdzv_backend=static and --node_rank on every node",
        endpoint_);
  }

  // The server may be an HTTP or SSH server, for example, whose banner is not a frame.
  std::string not_a_server_text(std::string_view received) const {
    return fmt::format("{} is not a rendezvous server: it sent '{}'; does another program use the port?", endpoint_,
                       printable(received.substr(0, 32)));
  }

  std::string lost_text(const std::string& problem) const {
    return fmt::format("lost the rendezvous server at {}: {}", format_host_port(target_.host, target_.port_or(0)),
                       problem);
  }

  const SessionClientOptions options_;
  const std::string endpoint_;
  HostPort target_{options_.host, options_.port};  // that is dialled
  bool own_ = false;                               // the server there is in this process
  bool dialling_ = false;
  std::string server_node_;          // of the last server that has named itself
  bool server_ends_ = false;         // it has said so
  bool may_have_successor_ = false;  // the server of this session, which has named itself
  std::int64_t seen_us_ = 0;         // of the last frame that this node has acknowledged
  Clock::time_point heard_at_{};     // when the last frame of this session came
  Clock::time_point probed_{};       // heard_at_ when the server was asked for a sign
  bool silent_ = false;              // ServerChoice has been told that the server is
  NodeInfo self_;
  const JobPolicy policy_;
  Handler handler_;
  RelayHandlers relay_;
  const std::function<bool()> workers_wait_;  // may be unset

  asio::io_context& loop_;
  tcp::socket socket_;
  rendezvous::HostLookup lookup_;
  asio::steady_timer watchdog_;
  asio::steady_timer beat_timer_, silence_timer_;
  asio::steady_timer pause_;
  asio::steady_timer lease_timer_;
  std::deque<std::string> outgoing_;
  std::string opened_;
  std::unique_ptr<TlsChannel> channel_;  // this attempt's channel; null: clear text
  std::optional<Deadline::Clock::time_point> refused_since_;

  StallAwareClock liveness_clock_;
  StallAwareClock::Duration last_heard_{};
  std::deque<Clock::time_point> unanswered_;  // when JOIN and the heartbeats were sent that await their answers
  Clock::time_point known_at_{};              // when the last one was sent that the server has answered
  Clock::time_point lease_end_{};             // for the round that was running when the contact broke
  bool kept_ = false;                         // this node's workers of that round run; no server has resumed it
  bool done_ = false;                         // if so: they have ended by themselves
  bool in_round_ = false;                     // the server of this session knows that the round runs
  Deadline::Clock::time_point began_;
  Deadline join_deadline_;
  unsigned attempts_ = 0;
  bool timed_out_ = false;
  bool connected_ = false;
  bool within_process_ = false;            // the connection does not leave this process
  bool refused_ = false;                   // this attempt ended in the authentication
  bool unresolved_ = false;                // this attempt ended in the lookup of the host's name
  bool name_problem_ = false;              // that lookup ended the attempt that last_problem_ describes
  bool established_ = false;               // the server has answered JOIN
  bool closed_ = false;                    // this join is over
  std::optional<std::string> end_reason_;  // why this session is ending
  std::optional<Round> round_;             // the latest proposed
  std::uint16_t store_port_ = 0;           // passed to ready() for it
  std::string lost_reason_;                // why the previous session was lost; empty in the first
  std::string last_problem_;               // the problem of the last attempt
  std::string reported_problem_;
};

SessionClient::SessionClient(asio::io_context& loop, SessionClientOptions options)
    : loop_(loop), options_(std::move(options)) {}

SessionClient::~SessionClient() {
  if (session_) session_->stop();
}

void SessionClient::join(const NodeInfo& self, const JobPolicy& policy, Handler handler) {
  if (session_) session_->stop();
  session_ =
      std::make_shared<Session>(loop_, options_, self, policy, std::move(handler), relay_handlers_, workers_wait_);
  session_->start();
}

void SessionClient::redial() {
  if (session_) session_->redial();
}

void SessionClient::give_server_up() {
  if (session_) session_->give_server_up();
}

void SessionClient::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  if (session_) session_->ready(generation, worker_store_port);
}

void SessionClient::report_success(std::int64_t generation) {
  if (session_) session_->send(SessionSuccess{generation});
}

void SessionClient::report_preempted(std::int64_t generation) {
  if (session_) session_->send(SessionPreempted{generation});
}

void SessionClient::report_node(std::int64_t generation, const NodeReport& report) {
  if (session_) session_->send(SessionNode{generation, report});
}

void SessionClient::request_stop(const std::string& who) {
  if (session_) session_->request_stop(who);
}

void SessionClient::report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                                   Survivors survivors) {
  if (session_) session_->send(SessionFailure{generation, wall_clock_us(), survivors, failures});
}

void SessionClient::answer_recovery(std::int64_t generation, const std::string& refusal) {
  if (session_) session_->send(SessionRecovery{generation, refusal});
}

bool SessionClient::relay(const RelayMessage& message) {
  if (!session_ || !session_->has_session()) return false;
  std::visit([this](const auto& one) { session_->send(one); }, message);
  return true;
}

void SessionClient::ask_to_leave(const std::string& reason) {
  if (session_) session_->send(LeaveRequest{reason});
}

void SessionClient::report_recoverable(std::int64_t generation, bool able) {
  if (session_) session_->send(WorkersRecoverable{generation, able});
}

void SessionClient::keep_round(bool done) {
  if (session_) session_->keep_round(done);
}

void SessionClient::give_up_round() {
  if (session_) session_->give_up_round();
}

void SessionClient::leave(const std::string& reason) {
  if (session_) session_->leave(reason);
}

}  // namespace ddprun
