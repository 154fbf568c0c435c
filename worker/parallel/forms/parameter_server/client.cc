#include "worker/parallel/forms/parameter_server/client.h"

#include <utility>

#include "worker/parallel/forms/parameter_server/messages.h"

namespace ddprun::parameter_server {
namespace {

void request(ProcessGroup& group, int server, Request kind) {
  auto number = static_cast<std::int64_t>(kind);
  group.send(span_of(number), server, request_tag, {.blocking = true});
}

}  // namespace

Client::~Client() {
  finish(sends_);
}

// Reads from one server after the other, in the same order at every worker: a worker that waits for a server holds none
// that comes after it. The first server gives the tickets.
std::optional<std::int64_t> Client::read() {
  std::optional<std::int64_t> ticket;
  for (const ServerRange& server : servers_) {
    if (ticket == no_ticket) {
      request(group_, server.rank, Request::leave);
      continue;
    }
    request(group_, server.rank, Request::read);
    std::int64_t number = 0;
    group_.recv(span_of(number), server.rank, ticket_tag, {.blocking = true});
    if (!ticket) ticket = number;
    if (ticket != no_ticket) group_.recv(server.values, server.rank, parameters_tag, {.blocking = true});
  }
  for (const auto& send : std::exchange(sends_, {})) send->wait();
  return ticket == no_ticket ? std::nullopt : ticket;
}

void Client::push() {
  for (const ServerRange& server : servers_) {
    request(group_, server.rank, Request::gradient);
    sends_.push_back(group_.send(server.gradient, server.rank, gradient_tag));
  }
}

}  // namespace ddprun::parameter_server
