#include "rendezvous/store/batch_requests.h"

#include "rendezvous/store/store_limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::uint8_t is_there = 0;  // the reply to CHECK

}  // namespace

void BatchRequests::add(const StoreCall& call) {
  std::visit([this](const auto& each) { add_call(each); }, call);
}

void BatchRequests::add_request(const Request& request, Reply reply) {
  encode(request, encoded_);
  replies_.push_back(reply);
}

void BatchRequests::add_call(const SetCall& call) {
  require_value(call.value, call.key);
  add_request(SetRequest{to_wire_(call.key), call.value}, Reply::none);
}

void BatchRequests::add_call(const AppendCall& call) {
  require_value(call.suffix, call.key);
  add_request(AppendRequest{to_wire_(call.key), call.suffix}, Reply::none);
}

void BatchRequests::add_call(const AddCall& call) {
  add_request(AddRequest{to_wire_(call.key), call.delta}, Reply::number);
}

void BatchRequests::add_call(const CompareSetCall& call) {
  require_value(call.expected, call.key);
  require_value(call.desired, call.key);
  add_request(CompareSetRequest{to_wire_(call.key), call.expected, call.desired}, Reply::value);
}

// This server answers GET of a missing key with an empty value, too.
void BatchRequests::add_call(const FindCall& call) {
  const auto key = to_wire_(call.key);
  const std::string_view keys[] = {key};
  encode(CheckRequest{keys}, encoded_);
  add_request(GetRequest{key}, Reply::found);
}

void BatchRequests::add_call(const SetWillCall& call) {
  require_value(call.value, call.key);
  if (has_wills_)
    add_request(LastWillRequest{to_wire_(call.key), call.value}, Reply::done);
  else
    replies_.push_back(Reply::none);
}

StoreResults BatchRequests::read_replies(TcpConnection& connection, Deadline deadline) const {
  StoreResults results;
  for (const auto reply : replies_) results.push_back(read_reply(connection, reply, deadline));
  return results;
}

std::optional<std::string> BatchRequests::read_reply(TcpConnection& connection, Reply reply, Deadline deadline) {
  switch (reply) {
    case Reply::none:
      return std::nullopt;
    case Reply::done:
      connection.read_done(deadline);
      return std::nullopt;
    case Reply::number:
      return std::to_string(connection.read_number<std::int64_t>(deadline));
    case Reply::value:
      return connection.read_vec(deadline);
    case Reply::found:
      break;
  }
  const bool found = connection.read_number<std::uint8_t>(deadline) == is_there;
  auto value = connection.read_vec(deadline);
  return found ? std::optional(std::move(value)) : std::nullopt;
}

}  // namespace ddprun::rendezvous
