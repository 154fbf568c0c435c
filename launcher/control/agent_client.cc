#include "launcher/control/agent_client.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/unix_socket.h"
#include "launcher/control/runtime_folder.h"

namespace ddprun {
namespace {

constexpr const char* no_answer = "the agent does not answer; is it frozen?";

// The queue of an agent that accepts nothing may be full.
UniqueFd connect_to(const std::filesystem::path& path) {
  auto socket = connect_unix(path);
  if (socket) return socket;
  const int cause = errno;
  if (cause == EAGAIN) throw make_error(Errc::timeout, "{}: {}", path.string(), no_answer);
  if (cause == ECONNREFUSED) ::unlink(path.c_str());  // its agent was killed, and its process id is in use again
  throw make_error(Errc::unreachable, "{}: {}", path.string(), errno_text(cause));
}

// Waits for data or the end of the stream. Returns false if the deadline passes first.
bool wait_readable(int connection, Deadline deadline) {
  for (;;) {
    pollfd entry{connection, POLLIN, 0};
    const int got = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (got > 0) return true;
    if (got == 0 || errno != EINTR) return false;
  }
}

std::string read_line(int connection, Deadline deadline) {
  std::string text;
  char chunk[4096];
  while (!text.ends_with('\n')) {
    if (!wait_readable(connection, deadline)) throw Error(Errc::timeout, no_answer);
    const auto got = ::read(connection, chunk, sizeof(chunk));
    if (got <= 0) throw make_error(Errc::connection_lost, "the agent exited before it answered");
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return text;
}

UniqueFd send_request(const std::filesystem::path& path, const std::string& request) {
  auto socket = connect_to(path);
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    throw make_error(Errc::connection_lost, "{}: {}", path.string(), errno_text(errno));
  return socket;
}

// All agents are asked before the first answer is read, so that a frozen agent does not use up the time of the others.
std::vector<std::pair<std::filesystem::path, UniqueFd>> requests_to_agents(const Environment& environment) {
  std::vector<std::pair<std::filesystem::path, UniqueFd>> requests;
  for (const auto& folder : runtime_folders(environment)) {
    for (const auto& path : agent_sockets(folder)) {
      try {
        requests.emplace_back(path, send_request(path, "status\n"));
      } catch (const Error& e) {
        log::log(e.code() == Errc::timeout ? log::Level::warn : log::Level::debug, "{}", e.what());
      }
    }
  }
  return requests;
}

}  // namespace

std::vector<LocalAgent> local_agents(const Environment& environment, Deadline deadline) {
  check_runtime_folder(environment);
  std::vector<LocalAgent> agents;
  for (const auto& [path, socket] : requests_to_agents(environment)) {
    try {
      agents.push_back({path, parse_agent_record(read_line(socket.get(), deadline))});
    } catch (const Error& e) {
      const auto level = e.code() == Errc::connection_lost ? log::Level::debug : log::Level::warn;
      log::log(level, "{}: {}", path.string(), e.what());
    }
  }
  return agents;
}

UniqueFd request_stop(const LocalAgent& agent, const std::string& requester, Deadline deadline) {
  auto socket = send_request(agent.socket, "stop " + requester + "\n");
  read_line(socket.get(), deadline);
  return socket;
}

std::string request_view(const LocalAgent& agent, Deadline deadline) {
  return read_line(send_request(agent.socket, "view\n").get(), deadline);
}

std::string request_signal(const LocalAgent& agent, int rank, int signal_number, const std::string& requester,
                           Deadline deadline) {
  const auto socket = send_request(agent.socket, fmt::format("signal {} {} {}\n", rank, signal_number, requester));
  auto answer = read_line(socket.get(), deadline);
  answer.pop_back();
  return answer;
}

UniqueFd request_attach(const LocalAgent& agent, int rank) {
  auto socket = send_request(agent.socket, fmt::format("attach {}\n", rank));
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0)
    throw make_error(Errc::io, "{}: {}", agent.socket.string(), errno_text(errno));
  return socket;
}

UniqueFd await_end(const LocalAgent& agent) {
  return send_request(agent.socket, "end\n");
}

std::optional<std::string> last_view(int connection, Deadline deadline) {
  constexpr std::chrono::seconds transfer_time(5);
  if (!wait_readable(connection, deadline)) return std::nullopt;
  return read_line(connection, Deadline::in(transfer_time));
}

UniqueFd connect_to_agent(const LocalAgent& agent) {
  return connect_to(agent.socket);
}

bool wait_for_close(int connection, Deadline deadline) {
  char chunk[256];
  while (wait_readable(connection, deadline))
    if (::read(connection, chunk, sizeof(chunk)) <= 0) return true;
  return false;
}

}  // namespace ddprun
