#include "launcher/hosts/remote_agent.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "launcher/agent/agent.h"
#include "launcher/cli/options.h"

namespace ddprun {
namespace {

constexpr std::size_t max_request_bytes = std::size_t{64} * 1024 * 1024;

// Workers inherit /dev/null instead of standard input.
UniqueFd take_over_input() {
  UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0)
    throw make_error(Errc::io, "cannot take over standard input: {}", errno_text(errno));
  return input;
}

void read_exactly(int fd, char* target, std::size_t size) {
  while (size > 0) {
    const auto got = ::read(fd, target, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw make_error(Errc::connection_lost, "the starting ddprun ended before it had sent a launch request");
    target += got;
    size -= static_cast<std::size_t>(got);
  }
}

LaunchRequest read_request(int fd) {
  std::string digits;
  for (char c = 0; digits.size() < 20; digits += c) {
    read_exactly(fd, &c, 1);
    if (c == '\n') break;
  }
  std::size_t size = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (status != std::errc{} || end != digits.data() + digits.size() || size > max_request_bytes)
    throw make_error(Errc::protocol, "'{}' is not a launch request: --remote_agent is for use by ddprun --hosts only",
                     digits);
  std::string body(size, '\0');
  read_exactly(fd, body.data(), size);
  const SecretText owner(body);
  return decode_request(owner.view());
}

// Takes "CLIENT SERVER" from sshd's "client port server port".
std::string connection_ends(const Environment& environment) {
  std::istringstream words(environment.get("SSH_CONNECTION").value_or(""));
  std::string client, client_port, server;
  return words >> client >> client_port >> server ? client + " " + server : "- -";
}

}  // namespace

// A thread that reads signal numbers and raises them, until the destructor.
class RemoteAgent::SignalForwarder {
 public:
  explicit SignalForwarder(int input) : input_(input), stop_(::eventfd(0, EFD_CLOEXEC)) {
    if (!stop_) throw make_error(Errc::io, "cannot make an event descriptor: {}", errno_text(errno));
    // The new thread inherits this mask: signals are handled by the main thread.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~SignalForwarder() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
  }
  SignalForwarder(const SignalForwarder&) = delete;
  SignalForwarder& operator=(const SignalForwarder&) = delete;

 private:
  void run() const {
    pollfd entries[2] = {{input_, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    for (;;) {
      if (::poll(entries, 2, -1) < 0) continue;
      if (entries[1].revents != 0) return;
      unsigned char signal_number = 0;
      const auto got = ::read(input_, &signal_number, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got == 1) {
        raise_separately(signal_number);
        continue;
      }
      log::warn("the ddprun that started this one is gone");
      ::kill(::getpid(), SIGTERM);
      return;
    }
  }

  // Waits while the signal is pending: a second one means more than the first, and the kernel would merge them.
  void raise_separately(int signal_number) const {
    sigset_t pending;
    pollfd stop{stop_.get(), POLLIN, 0};
    while (::sigpending(&pending) == 0 && ::sigismember(&pending, signal_number) == 1)
      if (::poll(&stop, 1, 1) > 0) return;
    ::kill(::getpid(), signal_number);
  }

  int input_;
  UniqueFd stop_;
  std::thread thread_;
};

RemoteAgent::RemoteAgent(std::string connection_id, const std::string& version, const Environment& own)
    : connection_id_(std::move(connection_id)), input_(take_over_input()), environment_(own) {
  send("here " + version + " " + connection_ends(own));
}

void RemoteAgent::receive_request() {
  request_ = read_request(input_.get());
  if (!request_.token.empty()) secret_.emplace(request_.token);
  for (const auto& entry : request_.environment) {
    const auto equals = entry.find('=');
    environment_.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (::chdir(request_.directory.c_str()) != 0)
    throw make_error(Errc::io, "cannot change into the folder {}: {}", request_.directory, errno_text(errno));
  environment_.set("PWD", request_.directory);
}

RemoteAgent::~RemoteAgent() = default;

void RemoteAgent::apply_options(LaunchSettings& settings) const {
  for (const auto& [name, value] : request_.options) settings.assign_from_command_line(name, value);
}

void RemoteAgent::attach(AgentSpec& spec) const {
  spec.open_rendezvous = [this, open = std::move(spec.open_rendezvous)](boost::asio::io_context& loop) {
    auto backend = open(loop);
    if (backend->is_host()) send("rendezvous " + backend->endpoint());
    return backend;
  };
  spec.summarize = [this](const std::string& summary, const std::string& error_file) {
    send("summary " + join_lines(summary));
    if (!error_file.empty()) send("error_file " + join_lines(error_file));
  };
}

void RemoteAgent::forward_signals() {
  signal_forwarder_ = std::make_unique<SignalForwarder>(input_.get());
}

void RemoteAgent::report_exit(int exit_code) {
  signal_forwarder_.reset();
  send("exit " + std::to_string(exit_code));
}

// An error is ignored: when the starter is gone, standard input reports it.
void RemoteAgent::send(const std::string& text) const {
  const auto message = encode_message(connection_id_, text);
  for (std::size_t done = 0; done < message.size();) {
    const auto got = ::write(STDOUT_FILENO, message.data() + done, message.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace ddprun
