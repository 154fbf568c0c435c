#include "tests/simulation/worker_store.h"

namespace ddprun::testing {

void WorkerStore::stop() {
  for (const auto& [id, client] : clients_) client.connection->close(Connection::server);
}

void WorkerStore::accept(const ConnectionPtr& connection) {
  const auto id = next_id_++;
  clients_[id].connection = connection;
  const std::weak_ptr<WorkerStore> weak = weak_from_this();
  connection->set_handlers(Connection::server, {.packet =
                                                    [weak, id](const Packet& packet) {
                                                      if (const auto self = weak.lock())
                                                        self->receive(id, packet.bytes);
                                                    },
                                                .closed =
                                                    [weak, id] {
                                                      if (const auto self = weak.lock()) self->close(id);
                                                    }});
}

void WorkerStore::receive(rendezvous::ConnectionId id, const std::string& bytes) {
  auto& parser = clients_.at(id).parser;
  std::vector<rendezvous::Reply> replies;
  parser.feed(bytes);
  while (const auto* request = parser.next()) state_.apply(id, *request, replies);
  deliver(replies);
}

void WorkerStore::close(rendezvous::ConnectionId id) {
  clients_.erase(id);
  std::vector<rendezvous::Reply> replies;
  state_.close(id, replies);
  deliver(replies);
}

void WorkerStore::deliver(const std::vector<rendezvous::Reply>& replies) {
  for (const auto& reply : replies)
    if (const auto client = clients_.find(reply.to); client != clients_.end())
      client->second.connection->send(Connection::server, {.bytes = reply.bytes});
}

}  // namespace ddprun::testing
