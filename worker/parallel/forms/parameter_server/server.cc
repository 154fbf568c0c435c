#include "worker/parallel/forms/parameter_server/server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/error.h"
#include "worker/parallel/forms/parameter_server/messages.h"

namespace ddprun::parameter_server {

Server::Server(ProcessGroup& group, std::vector<int> workers, Span values, Span gradient, std::int64_t bound)
    : group_(group), values_(values), gradient_(gradient), gate_(static_cast<int>(workers.size()), bound) {
  for (const int rank : workers)
    workers_.push_back({.rank = rank,
                        .gradient = std::vector<std::byte>(gradient.bytes()),
                        .sent = std::vector<std::byte>(values.bytes()),
                        .sends = {}});
}

Server::~Server() {
  for (const Worker& worker : workers_) finish(worker.sends);
}

void Server::serve(std::optional<std::int64_t> tickets, const std::function<void()>& update) {
  tickets_left_ = tickets;
  next_ticket_ = 0;
  gone_ = 0;
  while (gone_ < workers_.size()) {
    std::int64_t request = 0;
    const auto message = group_.recv(span_of(request), any_source, request_tag, {.blocking = true});
    const auto from = std::ranges::find(workers_, message->source(), &Worker::rank);
    if (from == workers_.end())
      throw make_error(Errc::mismatch, "rank {}, which is no worker, sent a request to a server of parameters",
                       message->source());
    handle(static_cast<std::size_t>(from - workers_.begin()), request);
    admit(update);
  }
  for (Worker& worker : workers_) wait_for_sends(worker);
}

void Server::handle(std::size_t index, std::int64_t request) {
  Worker& worker = workers_[index];
  switch (static_cast<Request>(request)) {
    case Request::read:
      if (tickets_left_ && *tickets_left_ == 0) {
        send_ticket(worker, no_ticket);
        ++gone_;
        return;
      }
      if (tickets_left_) --*tickets_left_;
      worker.ticket = next_ticket_++;
      gate_.ask_to_read(static_cast<int>(index));
      return;
    case Request::gradient:
      group_.recv({worker.gradient.data(), gradient_.count, gradient_.dtype}, worker.rank, gradient_tag,
                  {.blocking = true});
      gate_.ask_to_apply(static_cast<int>(index));
      return;
    case Request::leave:
      ++gone_;
      return;
  }
  throw make_error(Errc::mismatch, "rank {} sent request {}, which a server of parameters does not know", worker.rank,
                   request);
}

void Server::admit(const std::function<void()>& update) {
  while (const auto admission = gate_.admit()) {
    Worker& worker = workers_[static_cast<std::size_t>(admission->worker)];
    if (admission->kind == StalenessGate::Admission::Kind::read) {
      send_parameters(worker);
    } else {
      std::memcpy(gradient_.data, worker.gradient.data(), worker.gradient.size());
      update();
    }
  }
}

// Sends a copy, since the values change with the next update.
void Server::send_parameters(Worker& worker) {
  send_ticket(worker, worker.ticket);
  std::memcpy(worker.sent.data(), values_.data, worker.sent.size());
  worker.sends.push_back(group_.send({worker.sent.data(), values_.count, values_.dtype}, worker.rank, parameters_tag));
}

void Server::send_ticket(Worker& worker, std::int64_t ticket) {
  wait_for_sends(worker);
  worker.ticket = ticket;
  worker.sends.push_back(group_.send(span_of(worker.ticket), worker.rank, ticket_tag));
}

// The worker has received them: it would not have sent a request otherwise.
void Server::wait_for_sends(Worker& worker) {
  for (const auto& send : std::exchange(worker.sends, {})) send->wait();
}

}  // namespace ddprun::parameter_server
