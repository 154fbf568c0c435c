#include "rendezvous/membership/session_request.h"

#include <array>
#include <memory>
#include <utility>
#include <variant>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/store/authenticate.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun {
namespace {

// A null channel means clear text.
using Channel = std::unique_ptr<TlsChannel>;

ServerFrame first_frame(int socket, const Channel& channel, Deadline deadline) {
  rendezvous::FrameParser parser;
  std::array<char, 16384> chunk;
  for (;;) {
    const auto size = rendezvous::receive_some(socket, chunk.data(), chunk.size(), deadline);
    std::string text(chunk.data(), size);
    if (channel) {
      channel->feed(std::exchange(text, {}));
      channel->read(text);
    }
    parser.feed(text);
    if (const auto frame = parser.next()) return decode_server_frame(*frame);
  }
}

std::vector<JobStatus> jobs_of(const ServerFrame& answer) {
  if (const auto* refused = std::get_if<JoinRefused>(&answer)) throw Error(Errc::usage, refused->text);
  if (const auto* jobs = std::get_if<RequestAnswer>(&answer)) return parse_job_statuses(jobs->jobs);
  throw make_error(Errc::protocol, "an answer to another question");
}

std::vector<JobStatus> ask(const ServerAddress& server, const NodeFrame& question, Deadline deadline) {
  try {
    const auto socket = rendezvous::connect_once(server.host, server.port, deadline, server.stop);
    const rendezvous::ShutdownOnStop guard(socket.get(), server.stop);
    const auto frame = encode(question);
    const Channel channel =
        server.credentials ? rendezvous::authenticate(socket.get(), *server.credentials, deadline) : nullptr;
    auto request = rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{})) +
                   rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{frame}));
    if (channel) {
      channel->write(request);
      request = channel->take_output();
    }
    rendezvous::send_all(socket.get(), request, deadline);
    return jobs_of(first_frame(socket.get(), channel, deadline));
  } catch (const Error& e) {
    throw make_error(e.code(), "the rendezvous server at {}: {}", format_host_port(server.host, server.port), e.what());
  }
}

}  // namespace

ServerAddress server_at(const std::string& endpoint, std::shared_ptr<const Credentials> credentials) {
  const auto parsed = parse_host_port(endpoint);
  ServerAddress server{.host = parsed.host.empty() ? "127.0.0.1" : parsed.host, .credentials = std::move(credentials)};
  server.port = parsed.port_or(server.port);
  return server;
}

std::vector<JobStatus> ask_for_status(const ServerAddress& server, const std::string& run_id, Deadline deadline) {
  return ask(server, StatusRequest{run_id}, deadline);
}

std::optional<JobStatus> ask_to_stop(const ServerAddress& server, const std::string& run_id, const std::string& who,
                                     Deadline deadline) {
  auto jobs = ask(server, StopRequest{run_id, who}, deadline);
  if (jobs.empty()) return std::nullopt;
  if (jobs.size() != 1) throw make_error(Errc::protocol, "the rendezvous server stopped {} jobs", jobs.size());
  return std::move(jobs.front());
}

}  // namespace ddprun
