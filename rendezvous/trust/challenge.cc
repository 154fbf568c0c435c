#include "rendezvous/trust/challenge.h"

#include <cstring>

#include "common/error.h"
#include "common/random.h"
#include "rendezvous/trust/authentication_error.h"
#include "rendezvous/trust/secret.h"

namespace ddprun {
namespace {

constexpr char version = 1;
constexpr std::size_t code_bytes = std::tuple_size_v<AuthenticationCode>;
constexpr std::size_t nonce_bytes = std::tuple_size_v<Nonce>;
constexpr std::size_t max_job_bytes = 128;
constexpr std::size_t hello_head = 2 + nonce_bytes + 1;
constexpr std::size_t answer_bytes = 1 + nonce_bytes + code_bytes;

std::string_view view(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view job_of(const Credentials& credentials) {
  return std::string_view(credentials.job()).substr(0, max_job_bytes);
}

AuthenticationCode code_of(const Credentials& credentials, std::string_view role, const Nonce& client,
                           const Nonce& server, std::string_view job) {
  std::string message(role);
  message += version;
  message += view(client);
  message += view(server);
  message += job;
  return authentication_code(credentials.challenge_key().bytes(), message);
}

bool is_code(std::string_view received, const AuthenticationCode& code) {
  return equal_in_constant_time(received, view(code));
}

Nonce nonce_at(std::string_view bytes, std::size_t offset) {
  Nonce nonce;
  std::memcpy(nonce.data(), bytes.data() + offset, nonce.size());
  return nonce;
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

std::string ChallengeClient::hello() const {
  std::string bytes{challenge_byte, version};
  bytes += view(nonce_);
  const auto job = job_of(credentials_);
  bytes += static_cast<char>(job.size());
  bytes += job;
  return bytes;
}

std::optional<std::string> ChallengeClient::feed(std::string_view received) {
  received_ += received;
  if (!received_.empty() && received_.front() != version)
    throw AuthenticationError("the server does not answer the challenge: does it require no token, or TLS?");
  if (received_.size() < answer_bytes) return std::nullopt;
  if (received_.size() > answer_bytes) throw AuthenticationError("the server sent more than the answer to a challenge");
  const auto server = nonce_at(received_, 1);
  const auto job = job_of(credentials_);
  if (!is_code(std::string_view(received_).substr(1 + nonce_bytes),
               code_of(credentials_, "server", nonce_, server, job)))
    throw AuthenticationError("the server does not know the token of the job");
  return std::string(view(code_of(credentials_, "client", nonce_, server, job)));
}

bool ChallengeServer::feed(std::string_view received, std::string& output) {
  received_ += received;
  if (!client_nonce_ && !take_hello(output)) return false;
  if (received_.size() < code_bytes) return false;
  if (!is_code(std::string_view(received_).substr(0, code_bytes),
               code_of(credentials_, "client", *client_nonce_, nonce_, job_of(credentials_))))
    throw AuthenticationError("the client does not know the token of the job");
  received_.erase(0, code_bytes);
  return true;
}

// Removes a complete HELLO and answers it.
bool ChallengeServer::take_hello(std::string& output) {
  if (received_.size() > 1 && received_[1] != version)
    throw AuthenticationError(fmt::format("a challenge of version {}, and this ddprun has version {}",
                                          static_cast<int>(static_cast<unsigned char>(received_[1])),
                                          static_cast<int>(version)));
  if (received_.size() < hello_head) return false;
  const std::size_t job_bytes = static_cast<unsigned char>(received_[hello_head - 1]);
  if (job_bytes > max_job_bytes) throw AuthenticationError("a challenge with a job's id that is too long");
  if (received_.size() < hello_head + job_bytes) return false;
  if (std::string_view(received_).substr(hello_head, job_bytes) != job_of(credentials_))
    throw AuthenticationError("a challenge for another job");
  client_nonce_ = nonce_at(received_, 2);
  received_.erase(0, hello_head + job_bytes);
  output += version;
  output += view(nonce_);
  output += view(code_of(credentials_, "server", *client_nonce_, nonce_, job_of(credentials_)));
  return true;
}

}  // namespace ddprun
