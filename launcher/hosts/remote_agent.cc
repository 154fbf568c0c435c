#include "ddprun/launcher/hosts/remote_agent.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun {
namespace {

constexpr std::size_t most_order_bytes = std::size_t{64} * 1024 * 1024;

// Standard input moves out of the workers' reach.
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
      throw make_error(Errc::connection_lost, "the starting ddprun went away before it had said what to do");
    target += got;
    size -= static_cast<std::size_t>(got);
  }
}

RemoteOrder read_order(int fd) {
  std::string digits;
  for (char c = 0; digits.size() < 20; digits += c) {
    read_exactly(fd, &c, 1);
    if (c == '\n') break;
  }
  std::size_t size = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (status != std::errc{} || end != digits.data() + digits.size() || size > most_order_bytes)
    throw make_error(Errc::protocol, "'{}' is no order: --remote_agent is for ddprun --hosts to use", digits);
  std::string body(size, '\0');
  read_exactly(fd, body.data(), size);
  return decode_order(body);
}

// "CLIENT SERVER" of sshd's "client port server port".
std::string connection_ends(const Environment& environment) {
  std::istringstream words(environment.get("SSH_CONNECTION").value_or(""));
  std::string client, client_port, server;
  return words >> client >> client_port >> server ? client + " " + server : "- -";
}

}  // namespace

// The thread that reads signals until it is told to stop.
class RemoteAgent::Obedience {
 public:
  explicit Obedience(int input) : input_(input), stop_(::eventfd(0, EFD_CLOEXEC)) {
    if (!stop_) throw make_error(Errc::io, "cannot make an event descriptor: {}", errno_text(errno));
    // Signals are for the main thread.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Obedience() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
  }
  Obedience(const Obedience&) = delete;
  Obedience& operator=(const Obedience&) = delete;

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
        raise_on_its_own(signal_number);
        continue;
      }
      log::warn("the ddprun that started this one is gone");
      ::kill(::getpid(), SIGTERM);
      return;
    }
  }

  // A second signal says more than the first, and the kernel makes one of two that nobody has taken yet.
  void raise_on_its_own(int signal_number) const {
    sigset_t untaken;
    pollfd stop{stop_.get(), POLLIN, 0};
    while (::sigpending(&untaken) == 0 && ::sigismember(&untaken, signal_number) == 1)
      if (::poll(&stop, 1, 1) > 0) return;
    ::kill(::getpid(), signal_number);
  }

  int input_;
  UniqueFd stop_;
  std::thread thread_;
};

RemoteAgent::RemoteAgent(std::string token, const std::string& version, const Environment& own)
    : token_(std::move(token)), input_(take_over_input()), environment_(own) {
  say("here " + version + " " + connection_ends(own));
}

void RemoteAgent::receive_order() {
  order_ = read_order(input_.get());
  for (const auto& entry : order_.environment) {
    const auto equals = entry.find('=');
    environment_.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (::chdir(order_.directory.c_str()) != 0)
    throw make_error(Errc::io, "cannot change into the folder {}: {}", order_.directory, errno_text(errno));
  environment_.set("PWD", order_.directory);
}

RemoteAgent::~RemoteAgent() = default;

void RemoteAgent::apply_options(LaunchSettings& settings) const {
  for (const auto& [name, value] : order_.options) settings.assign_from_command_line(name, value);
}

void RemoteAgent::report_to_starter(AgentSpec& spec) const {
  spec.open_rendezvous = [this, open = std::move(spec.open_rendezvous)](boost::asio::io_context& loop) {
    auto backend = open(loop);
    if (backend->is_host()) say("meeting " + backend->endpoint());
    return backend;
  };
  spec.summarize = [this](const std::string& summary, const std::string& error_file) {
    say("summary " + one_line(summary));
    if (!error_file.empty()) say("error_file " + one_line(error_file));
  };
}

void RemoteAgent::obey() {
  obedience_ = std::make_unique<Obedience>(input_.get());
}

void RemoteAgent::say_exit(int exit_code) {
  obedience_.reset();
  say("exit " + std::to_string(exit_code));
}

// Nobody may be listening any more; that is heard elsewhere.
void RemoteAgent::say(const std::string& text) const {
  const auto word = remote_word(token_, text);
  for (std::size_t done = 0; done < word.size();) {
    const auto got = ::write(STDOUT_FILENO, word.data() + done, word.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace ddprun
