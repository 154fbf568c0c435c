#include "launcher/hosts/hosts_job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <sstream>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/pipe.h"
#include "common/timer.h"
#include "launcher/cli/worker_command.h"
#include "launcher/hosts/ssh_command.h"
#include "launcher/output/console.h"
#include "launcher/output/line_assembler.h"
#include "launcher/output/log_through_console.h"
#include "launcher/report/failure_report.h"
#include "launcher/workers/guardian_watch.h"
#include "launcher/workers/worker_process.h"
#include "rendezvous/trust/secret.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

void assign(asio::posix::stream_descriptor& descriptor, UniqueFd fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  descriptor.assign(fd.release());
}

// Standard output or standard error of a host's agent.
struct Stream {
  Stream(asio::io_context& loop, Console::Stream to_stream) : reader(loop), to(to_stream) {}

  asio::posix::stream_descriptor reader;
  Console::Stream to;
  std::optional<LineAssembler> lines;  // nullopt: bytes are passed on unchanged
  std::string held;                    // standard error until the agent runs, which is ssh's
  bool holding = false;
  bool waiting = false;  // waits for the stream to become readable
};

// The connection to one host's agent, or the agent itself.
struct Connection {
  Connection(asio::io_context& loop, const std::string& connection_id)
      : input(loop), out(loop, Console::Stream::out), err(loop, Console::Stream::err), messages(connection_id) {}

  asio::posix::stream_descriptor input;
  std::deque<std::string> unsent;
  Stream out;
  Stream err;
  MessageParser messages;
  Tail tail;  // end of standard error
  StartedProcess process;
};

std::string describe(const StartedProcess& process, const ProcessExit& exit, const std::string& program) {
  if (const int error = exec_error(process)) return fmt::format("cannot execute {}: {}", program, errno_text(error));
  return exit.signal_number != 0 ? fmt::format("{} was ended by signal {}", program, exit.signal_number)
                                 : fmt::format("{} ended with {}", program, exit.code);
}

std::string last_line(const std::string& lines) {
  const auto end = lines.rfind('\n');
  return end == std::string::npos ? lines : lines.substr(end + 1);
}

class HostsJob {
 public:
  HostsJob(const HostsJobSpec& spec, Guardian& guardian)
      : spec_(spec),
        guardian_(guardian),
        console_(STDOUT_FILENO, STDERR_FILENO, [this] { asio::post(loop_, [this] { wait_for_all(); }); }),
        log_through_console_(console_),
        signals_(loop_),
        guardian_watch_(loop_, guardian),
        timer_(loop_),
        state_(hosts_of(spec), spec.policy) {}

  int run() {
    catch_sigpipe();  // an agent that has ended reads no request and no signal
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) signals_.add(signal);
    if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
    wait_for_signal();
    check_scheduler_file(spec_.environment);
    for (std::size_t i = 0; i < spec_.hosts.size(); ++i) start(i);
    guardian_.confirm_groups();
    execute(state_.on_start());
    loop_.run();
    console_.drain(std::chrono::seconds(5));
    return exit_code_ == exit_success && console_.write_failed() ? exit_fault : exit_code_;
  }

 private:
  static std::vector<JobHost> hosts_of(const HostsJobSpec& spec) {
    std::vector<JobHost> hosts;
    for (const auto& host : spec.hosts)
      hosts.push_back({.name = host.name, .local = is_this_machine(host, local_host_name())});
    return hosts;
  }

  static bool is_ignored(int signal_number) {
    struct sigaction action {};
    return ::sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }

  std::vector<std::string> command(std::size_t host) const {
    const auto& entry = spec_.hosts[host];
    const auto argument = "--remote_agent=" + spec_.connection_id;
    if (is_this_machine(entry, local_host_name())) return {spec_.program, argument};
    return ssh_command(spec_.ssh, entry, spec_.program, argument);
  }

  void start(std::size_t host) {
    auto& connection = *connections_.emplace_back(std::make_unique<Connection>(loop_, spec_.connection_id));
    auto in = make_pipe(), out = make_pipe(), err = make_pipe();
    const auto arguments = command(host);
    auto environment = spec_.environment;
    environment.unset("TORCHELASTIC_ERROR_FILE");  // this process writes it, not an agent
    connection.process = start_process({.executable = find_program(arguments.front(), spec_.environment),
                                        .arguments = arguments,
                                        .environment = environment.entries(),
                                        .in = in.reader.get(),
                                        .out = out.writer.get(),
                                        .err = err.writer.get(),
                                        .descriptors = spec_.descriptors},
                                       guardian_);
    assign(connection.input, std::move(in.writer));
    assign(connection.out.reader, std::move(out.reader));
    assign(connection.err.reader, std::move(err.reader));
    connection.err.holding = true;
    if (spec_.hosts.size() > 1)
      for (auto* stream : {&connection.out, &connection.err})
        stream->lines.emplace(fmt::format("[{}] ", spec_.hosts[host].name));
    wait_readable(host, connection.out);
    wait_readable(host, connection.err);
  }

  void wait_for_signal() {
    signals_.async_wait([this](error_code failure, int signal) {
      if (failure) return;
      if (signal == SIGCHLD)
        reap();
      else if (signal == SIGUSR1 || signal == SIGUSR2)
        for (std::size_t i = 0; i < connections_.size(); ++i) send(i, std::string(1, static_cast<char>(signal)));
      else
        execute(state_.on_signal(signal));
      wait_for_signal();
    });
  }

  void wait_for_all() {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      wait_readable(i, connections_[i]->out);
      wait_readable(i, connections_[i]->err);
    }
  }

  // Nothing is read while the console is full, so that the workers block, not this process.
  void wait_readable(std::size_t host, Stream& stream) {
    if (stream.waiting || !stream.reader.is_open() || console_.full()) return;
    stream.waiting = true;
    stream.reader.async_wait(asio::posix::descriptor_base::wait_read, [this, host, &stream](error_code failure) {
      stream.waiting = false;
      if (failure || !stream.reader.is_open()) return;
      read_some(host, stream);
      wait_readable(host, stream);
    });
  }

  bool read_some(std::size_t host, Stream& stream) {
    char block[64 * 1024];
    ssize_t got = 0;
    do got = ::read(stream.reader.native_handle(), block, sizeof(block));
    while (got < 0 && errno == EINTR);
    if (got > 0) receive(host, stream, {block, static_cast<std::size_t>(got)});
    if (got == 0 || (got < 0 && errno != EAGAIN)) close(host, stream);
    return got > 0;
  }

  void receive(std::size_t host, Stream& stream, std::string_view bytes) {
    auto& connection = *connections_[host];
    if (stream.to == Console::Stream::err) {
      connection.tail.feed(bytes);
      if (stream.holding) {
        stream.held += bytes;
        return;
      }
      return show(stream, bytes);
    }
    std::string output;
    std::vector<std::string> messages;
    connection.messages.feed(bytes, output, messages);
    show(stream, output);
    for (const auto& message : messages) handle_message(host, message);
  }

  void show(Stream& stream, std::string_view bytes) {
    std::string text;
    if (stream.lines)
      stream.lines->feed(bytes, text);
    else
      text = bytes;
    if (!text.empty()) console_.write(stream.to, std::move(text));
  }

  void close(std::size_t host, Stream& stream) {
    if (!stream.reader.is_open()) return;
    std::string text;
    if (stream.to == Console::Stream::out) connections_[host]->messages.flush(text);
    show(stream, text);
    text.clear();
    if (stream.lines) stream.lines->flush(text);
    if (!text.empty()) console_.write(stream.to, std::move(text));
    error_code ignored;
    stream.reader.close(ignored);
  }

  void handle_message(std::size_t host, const std::string& text) {
    std::istringstream stream(text);
    std::string kind;
    stream >> kind;
    if (kind == "here") {
      release_held(connections_[host]->err);
      std::string version, client, server;
      stream >> version >> client >> server;
      const auto address = [](const std::string& end) { return end == "-" ? std::string() : end; };
      execute(state_.on_started(host, version, {.client = address(client), .server = address(server)}));
    } else if (kind == "rendezvous") {
      std::string endpoint;
      stream >> endpoint;
      execute(state_.on_rendezvous(endpoint));
    } else if (kind == "summary" && summary_.empty()) {
      summary_ = rest_of(text, kind);
    } else if (kind == "error_file") {
      report_to_scheduler(spec_.environment, rest_of(text, kind));
    } else if (kind == "exit") {
      int code = exit_fault;
      stream >> code;
      execute(state_.on_exit_code(host, code));
    }
  }

  static std::string rest_of(const std::string& text, const std::string& kind) {
    return split_lines(text.substr(std::min(text.size(), kind.size() + 1)));
  }

  // Passes on warnings of ssh, now that the connection is made.
  void release_held(Stream& stream) {
    stream.holding = false;
    show(stream, std::exchange(stream.held, ""));
  }

  void reap() {
    for (const auto& change : reap_children(guardian_)) {
      if (change.kind != ProcessChange::Kind::ended) continue;
      for (std::size_t i = 0; i < connections_.size(); ++i)
        if (connections_[i]->process.pid == change.exit.pid) ended(i, change.exit);
    }
  }

  // All that the child wrote is in its pipes by now. Another process may still hold their write ends, so there may be
  // no end of file.
  void ended(std::size_t host, const ProcessExit& exit) {
    auto& connection = *connections_[host];
    guardian_.remove_groups({&exit.pid, 1});
    for (auto* stream : {&connection.out, &connection.err}) {
      while (stream->reader.is_open() && read_some(host, *stream)) continue;
      close(host, *stream);
    }
    error_code ignored;
    connection.input.close(ignored);
    const auto& held = connection.err.held;
    const auto last = last_line(connection.tail.lines());
    // Some errors of ssh have several lines, such as a changed host key.
    if (connection.err.holding && held.find('\n') + 1 < held.size()) console_.write(Console::Stream::err, held);
    execute(state_.on_closed(host, last.empty() ? describe(connection.process, exit, command(host).front()) : last));
  }

  void send(std::size_t host, std::string bytes) {
    auto& connection = *connections_[host];
    if (!connection.input.is_open()) return;
    connection.unsent.push_back(std::move(bytes));
    if (connection.unsent.size() == 1) write_next(connection);
  }

  void write_next(Connection& connection) {
    asio::async_write(connection.input, asio::buffer(connection.unsent.front()),
                      [this, &connection](error_code failure, std::size_t) {
                        wipe(connection.unsent.front());  // a launch request has the token in it
                        connection.unsent.pop_front();
                        if (failure) connection.unsent.clear();
                        if (!connection.unsent.empty()) write_next(connection);
                      });
  }

  void execute(const HostsJobActions& actions) {
    for (const auto& action : actions) std::visit([this](const auto& a) { execute(a); }, action);
  }

  void execute(const SendRequest& action) {
    auto request = request_for(spec_, action);
    request.token = token_.view();
    auto bytes = encode(request);
    wipe(request.token);
    send(action.host, std::move(bytes));
  }
  void execute(const SendSignal& action) { send(action.host, std::string(1, static_cast<char>(action.signal_number))); }
  void execute(const KillConnection& action) { ::kill(-connections_[action.host]->process.pid, SIGKILL); }
  void execute(const SetTimer& action) {
    timer_.run_after(action.after, [this] { execute(state_.on_timer()); });
  }
  void execute(const LogError& action) { log::error("{}", action.text); }
  void execute(const FinishHostsJob& action) {
    exit_code_ = action.exit_code;
    console_.write(Console::Stream::err, summary_);
    loop_.stop();
  }

  const HostsJobSpec& spec_;
  Guardian& guardian_;
  asio::io_context loop_{1};
  Console console_;
  LogThroughConsole log_through_console_;
  asio::signal_set signals_;
  GuardianWatch guardian_watch_;
  Timer timer_;
  HostsJobState state_;
  std::vector<std::unique_ptr<Connection>> connections_;
  const SecretText token_ = SecretText::hex_of(Secret::random());  // the job's token
  std::string summary_;                                            // the job's failure; all hosts send the same one
  int exit_code_ = exit_fault;
};

}  // namespace

int run_hosts_job(const HostsJobSpec& spec, Guardian& guardian) {
  HostsJob job(spec, guardian);
  return job.run();
}

}  // namespace ddprun
