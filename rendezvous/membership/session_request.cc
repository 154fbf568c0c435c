#include "ddprun/rendezvous/membership/session_request.h"

#include <array>
#include <variant>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/rendezvous/membership/session_protocol.h"
#include "ddprun/rendezvous/store/protocol.h"
#include "ddprun/rendezvous/store/tcp_socket.h"

namespace ddprun {
namespace {

ServerFrame first_frame(int socket, Deadline deadline) {
  rendezvous::FrameParser parser;
  std::array<char, 16384> chunk;
  for (;;) {
    const auto size = rendezvous::receive_some(socket, chunk.data(), chunk.size(), deadline);
    parser.feed({chunk.data(), size});
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
    const auto socket = rendezvous::connect_once(server.host, server.port, deadline);
    const auto frame = encode(question);
    rendezvous::send_all(socket.get(),
                         rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{})) +
                             rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{frame})),
                         deadline);
    return jobs_of(first_frame(socket.get(), deadline));
  } catch (const Error& e) {
    throw make_error(e.code(), "the rendezvous server at {}: {}", format_host_port(server.host, server.port), e.what());
  }
}

}  // namespace

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
