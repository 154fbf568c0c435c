#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_call.h"
#include "rendezvous/store/tcp_connection.h"

namespace ddprun::rendezvous {

// The requests of a batch of calls (Store::execute()), to be sent together, and the form of their replies.
// Ownership: owns the encoded requests. Threads: not thread-safe. Errors: add() throws Errc::usage for a key or value
//   that is too long; read_replies() what the connection throws.
class BatchRequests {
 public:
  using ToWire = std::function<std::string(std::string_view key)>;
  // has_wills: whether the server has last wills.
  BatchRequests(bool has_wills, ToWire to_wire) : has_wills_(has_wills), to_wire_(std::move(to_wire)) {}

  void add(const StoreCall& call);
  const std::string& encoded() const { return encoded_; }
  StoreResults read_replies(TcpConnection& connection, Deadline deadline) const;

 private:
  enum class Reply { none, done, number, value, found };

  void add_call(const SetCall& call);
  void add_call(const AppendCall& call);
  void add_call(const AddCall& call);
  void add_call(const CompareSetCall& call);
  void add_call(const FindCall& call);
  void add_call(const SetWillCall& call);
  void add_request(const Request& request, Reply reply);
  static std::optional<std::string> read_reply(TcpConnection& connection, Reply reply, Deadline deadline);

  const bool has_wills_;
  const ToWire to_wire_;
  std::string encoded_;
  std::vector<Reply> replies_;  // by call
};

}  // namespace ddprun::rendezvous
