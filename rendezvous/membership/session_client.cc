#include "ddprun/rendezvous/membership/session_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <deque>
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
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "ddprun/common/deadline.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/host_port.h"
#include "ddprun/rendezvous/membership/attentive_clock.h"
#include "ddprun/rendezvous/membership/membership_text.h"
#include "ddprun/rendezvous/membership/session_protocol.h"
#include "ddprun/rendezvous/store/backoff.h"
#include "ddprun/rendezvous/store/protocol.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;
using boost::system::error_code;

constexpr auto awaited = asio::as_tuple(asio::use_awaitable);
constexpr auto attempt_timeout = 10s;  // from the name lookup to the server's first frame
constexpr auto first_notice = 500ms;   // a server that is a moment behind is not worth a line

std::int64_t wall_clock_us() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace

// One join: from the first dial to the end of the session. Its coroutine and its timers keep it alive; stop() ends
// them.
class SessionClient::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::io_context& loop, SessionClientOptions options, NodeInfo self, JobPolicy policy, Handler handler)
      : options_(std::move(options)),
        endpoint_(format_host_port(options_.host, options_.port)),
        self_(std::move(self)),
        policy_(std::move(policy)),
        handler_(std::move(handler)),
        loop_(loop),
        socket_(loop),
        resolver_(loop),
        watchdog_(loop),
        beat_timer_(loop),
        pause_(loop),
        attention_(policy_.keep_alive_interval),
        began_(Deadline::Clock::now()),
        join_deadline_(Deadline::in(policy_.join_timeout)) {}

  void start() { asio::co_spawn(loop_, run(shared_from_this()), asio::detached); }

  void stop() {
    handler_ = nullptr;
    close();
  }

  void send(const NodeFrame& frame) {
    if (!established_ || over_) return;
    write(rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(frame)})));
  }

  // Before there is a session nobody else knows of this node: the verdict is its own.
  void request_stop(const std::string& who) {
    if (over_) return;
    if (established_) return send(StopRequest{.who = who});
    asio::post(loop_, [self = shared_from_this(), who] {
      if (self->over_) return;
      self->close();
      self->emit(JobEnded{{.exit_code = exit_for_signal(SIGTERM), .reason = "stopped by " + who}});
    });
  }

  // The owner may go away right after this, so the word is given to the system at once where it takes it.
  void leave(const std::string& reason) {
    handler_ = nullptr;
    if (established_ && !over_ && outgoing_.empty()) {
      const std::string bytes =
          rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(NodeFrame{SessionLeave{reason}})}));
      error_code ignored;
      socket_.non_blocking(true, ignored);
      socket_.write_some(asio::buffer(bytes), ignored);
    }
    close();
  }

 private:
  // A parameter rather than a capture keeps this alive: the frame owns it.
  asio::awaitable<void> run(std::shared_ptr<Session>) {
    Backoff backoff;
    std::minstd_rand random{std::random_device{}()};
    while (!over_) {
      const std::string problem = co_await attempt();
      if (over_) co_return;
      if (established_) {
        if (!may_rejoin()) co_return lose(Errc::connection_lost, lost_text(problem));
        begin_rejoin(problem);
        backoff = Backoff();
      } else {
        if (join_deadline_.expired()) co_return give_up(problem);
        notice(problem);
        pause_.expires_at(*earlier(Deadline::in(backoff.next(random)), join_deadline_).when());
        co_await pause_.async_wait(awaited);
      }
      if (!over_ && options_.before_retry) options_.before_retry();
    }
  }

  // ---- after the session was lost

  bool may_rejoin() const { return options_.rejoin_timeout.count() > 0 && policy_.may_be_replaced(); }

  // The server at the endpoint may be another one by then: it is told which round this node comes from.
  void begin_rejoin(const std::string& problem) {
    established_ = false;
    parting_.reset();
    began_ = Deadline::Clock::now();
    join_deadline_ = Deadline::in(options_.rejoin_timeout);
    lost_ = lost_text(problem);
    if (round_)
      self_.former = FormerRound{
          .generation = round_->generation, .group_rank = round_->self, .restarts_used = round_->restarts_used};
    emit(ContactBroken{fmt::format("{}; trying to rejoin for {}", lost_, duration_text(options_.rejoin_timeout))});
  }

  void give_up(const std::string& problem) {
    if (lost_.empty()) return lose(Errc::timeout, unreachable_text(problem));
    lose(Errc::connection_lost, fmt::format("{}; it did not come back within {} (--rdzv_conf=store_timeout)", lost_,
                                            duration_text(options_.rejoin_timeout)));
  }

  // Dials once and serves the session to its end. Returns why there is none (any more).
  asio::awaitable<std::string> attempt() {
    socket_ = tcp::socket(loop_);
    ++attempts_;
    timed_out_ = connected_ = false;
    set_watchdog();
    const std::string problem = co_await serve();
    end_attempt();
    // An attempt cut short by the join deadline says less than the one before.
    if (!timed_out_) problem_ = problem;
    if (timed_out_ && (problem_.empty() || !join_deadline_.expired()))
      problem_ = connected_ ? "what listens there takes connections and says nothing" : "nothing answers";
    co_return problem_;
  }

  // A JOIN that has had no answer is taken back by a reset: a server that reads it later, behind the next one, would
  // take this for a node that has come back.
  void drop_connection() {
    error_code ignored;
    if (!established_) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
  }

  asio::awaitable<std::string> serve() {
    if (const error_code error = co_await connect()) co_return error.message();
    if (over_) co_return "";
    connected_ = true;
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    outgoing_.clear();
    std::string hello = rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{}));
    hello += rendezvous::encode(
        rendezvous::Request(rendezvous::SessionRequest{encode(NodeFrame{SessionJoin{self_, policy_}})}));
    write(std::move(hello));
    co_return co_await read();
  }

  // An address is dialled as it is; a lookup would start a thread.
  asio::awaitable<error_code> connect() {
    error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (!error) {
      const auto [failure] = co_await socket_.async_connect({address, options_.port}, awaited);
      co_return failure;
    }
    const auto [lookup, found] =
        co_await resolver_.async_resolve(name_to_resolve(options_.host), std::to_string(options_.port), awaited);
    if (lookup) co_return lookup;
    const auto [failure, endpoint] = co_await asio::async_connect(socket_, found, awaited);
    co_return failure;
  }

  asio::awaitable<std::string> read() {
    rendezvous::FrameParser parser;
    std::array<char, 16384> chunk;
    while (!over_) {
      const auto [error, size] = co_await socket_.async_read_some(asio::buffer(chunk), awaited);
      if (over_) co_return "";
      if (parting_) co_return *parting_;
      if (error == asio::error::eof)
        co_return established_ ? "it closed the connection" : "it closed the connection without opening a session";
      if (error) co_return error.message();
      try {
        parser.feed({chunk.data(), size});
        while (auto bytes = over_ || parting_ ? std::nullopt : parser.next()) hear(decode_server_frame(*bytes));
      } catch (const Error& broken) {
        lose(broken.code(), established_ ? lost_text(broken.what()) : stranger_text({chunk.data(), size}));
      }
      if (parting_) co_return *parting_;
    }
    co_return "";
  }

  // ---- what the server says

  void hear(ServerFrame frame) {
    if (!established_) begin_beating();
    attention_.advance(AttentiveClock::Clock::now());
    heard_ = attention_.elapsed();
    std::visit([this](auto& one) { take(std::move(one)); }, frame);
  }

  void take(SessionBeat&&) {}
  void take(RequestAnswer&&) {}  // to who asks from outside
  void take(JoinRefused&& frame) { lose(Errc::usage, frame.text); }
  void take(NodeDropped&& frame) {
    if (!frame.may_return || !may_rejoin()) return lose(Errc::peer_lost, frame.text);
    parting_ = frame.text;
  }
  void take(SessionFarewell&& frame) { parting_ = fmt::format("it goes away ({})", frame.reason); }
  void take(RendezvousWaiting&& frame) { emit(std::move(frame)); }
  void take(RoundProposed&& frame) {
    const auto self = static_cast<std::size_t>(frame.round.self);
    if (frame.round.members.at(self).node_id != self_.id)
      throw make_error(Errc::protocol, "generation {} takes this node for {}", frame.round.generation,
                       frame.round.members[self].host);
    round_ = frame.round;
    emit(std::move(frame));
  }
  void take(SessionStarted&& frame) {
    if (!round_ || round_->generation != frame.generation) return;
    round_->master_addr = std::move(frame.master_addr);
    round_->master_port = frame.master_port;
    emit(RoundStarted{*round_});
  }
  void take(JobEnded&& frame) {
    close();
    emit(std::move(frame));
  }

  // The handler may destroy our owner, or call it.
  void emit(RendezvousEvent event) {
    if (const Handler handler = handler_) handler(std::move(event));
  }

  void lose(Errc code, const std::string& text) {
    close();
    emit(ContactLost{Error(code, text)});
  }

  void close() {
    over_ = true;
    end_attempt();
    pause_.cancel();
  }

  void end_attempt() {
    drop_connection();
    resolver_.cancel();
    watchdog_.cancel();
    beat_timer_.cancel();
  }

  // ---- time

  void set_watchdog() {
    watchdog_.expires_at(*earlier(Deadline::in(attempt_timeout), join_deadline_).when());
    watchdog_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->timed_out_ = true;
      self->resolver_.cancel();
      self->drop_connection();
    });
  }

  void begin_beating() {
    established_ = true;
    watchdog_.cancel();
    attention_.advance(AttentiveClock::Clock::now());
    heard_ = attention_.elapsed();
    next_beat();
  }

  void next_beat() {
    const AttentiveClock::Duration left = heard_ + silence_bound() - attention_.elapsed();
    const bool last = attention_.fair() && left < policy_.keep_alive_interval;
    beat_timer_.expires_after(last ? left : policy_.keep_alive_interval);
    beat_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self && !self->over_) self->beat();
    });
  }

  std::chrono::milliseconds silence_bound() const {
    return policy_.keep_alive_interval * policy_.keep_alive_max_attempt;
  }

  void beat() {
    attention_.advance(AttentiveClock::Clock::now());
    if (attention_.fair() && attention_.elapsed() - heard_ >= silence_bound())
      return part(fmt::format("no sign of life for {}", duration_text(silence_bound())));
    send(SessionBeat{});
    next_beat();
  }

  // Ends the session from this side; the reader goes on from there.
  void part(const std::string& why) {
    parting_ = why;
    error_code ignored;
    socket_.close(ignored);
  }

  // ---- writing

  void write(std::string bytes) {
    outgoing_.push_back(std::move(bytes));
    if (outgoing_.size() == 1) write_next();
  }

  void write_next() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = shared_from_this(), attempt = attempts_](error_code error, std::size_t) {
                        if (error || self->over_ || attempt != self->attempts_) return;  // the reader finds out
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) self->write_next();
                      });
  }

  // ---- for people

  void notice(const std::string& problem) {
    const auto elapsed = Deadline::Clock::now() - began_;
    if (elapsed < first_notice || problem == noticed_ || !lost_.empty()) return;
    noticed_ = problem;
    emit(RendezvousWaiting{fmt::format("no rendezvous server at {} yet ({}); trying for up to {}", endpoint_, problem,
                                       duration_text(policy_.join_timeout))});
  }

  std::string unreachable_text(const std::string& problem) const {
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - began_);
    return fmt::format(
        "no rendezvous server answered at {} within {} ({}). The agent on host {} serves it: check that it runs with "
        "the same "
        "endpoint, that the name is right, and that the port can be reached from here",
        endpoint_, duration_text(elapsed), problem, options_.host);
  }

  // An HTTP or SSH server, say, which introduces itself.
  std::string stranger_text(std::string_view said) const {
    std::string shown(said.substr(0, 32));
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '.');
    return fmt::format("what answers at {} is no rendezvous server: it says '{}'; is the port another program's?",
                       endpoint_, shown);
  }

  std::string lost_text(const std::string& problem) const {
    return fmt::format("lost the rendezvous server at {}: {}", endpoint_, problem);
  }

  const SessionClientOptions options_;
  const std::string endpoint_;
  NodeInfo self_;
  const JobPolicy policy_;
  Handler handler_;

  asio::io_context& loop_;
  tcp::socket socket_;
  tcp::resolver resolver_;
  asio::steady_timer watchdog_;
  asio::steady_timer beat_timer_;
  asio::steady_timer pause_;
  std::deque<std::string> outgoing_;

  AttentiveClock attention_;
  AttentiveClock::Duration heard_{};
  Deadline::Clock::time_point began_;
  Deadline join_deadline_;
  unsigned attempts_ = 0;
  bool timed_out_ = false;
  bool connected_ = false;
  bool established_ = false;            // the server has answered our JOIN
  bool over_ = false;                   // nothing more is to happen
  std::optional<std::string> parting_;  // why this session is about to end
  std::optional<Round> round_;          // the latest that was proposed
  std::string lost_;                    // how the session before was lost; empty in the first
  std::string problem_;                 // of the last attempt
  std::string noticed_;
};

SessionClient::SessionClient(asio::io_context& loop, SessionClientOptions options)
    : loop_(loop), options_(std::move(options)) {}

SessionClient::~SessionClient() {
  if (session_) session_->stop();
}

void SessionClient::join(const NodeInfo& self, const JobPolicy& policy, Handler handler) {
  if (session_) session_->stop();
  session_ = std::make_shared<Session>(loop_, options_, self, policy, std::move(handler));
  session_->start();
}

void SessionClient::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  if (session_) session_->send(SessionReady{generation, worker_store_port});
}

void SessionClient::report_success(std::int64_t generation) {
  if (session_) session_->send(SessionSuccess{generation});
}

void SessionClient::report_preempted(std::int64_t generation) {
  if (session_) session_->send(SessionPreempted{generation});
}

void SessionClient::report_workers(std::int64_t generation, const std::vector<WorkerReport>& changed) {
  if (session_) session_->send(SessionWorkers{generation, changed});
}

void SessionClient::request_stop(const std::string& who) {
  if (session_) session_->request_stop(who);
}

void SessionClient::report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) {
  if (session_) session_->send(SessionFailure{generation, wall_clock_us(), failures});
}

void SessionClient::leave(const std::string& reason) {
  if (session_) session_->leave(reason);
}

}  // namespace ddprun
