#include "rendezvous/trust/credentials.h"

#include <utility>

#include "rendezvous/trust/key_derivation.h"

namespace ddprun {
namespace {

// These names have to change whenever the use of the keys changes.
constexpr const char* tls_purpose = "ddprun store v1";
constexpr const char* challenge_purpose = "ddprun store challenge v1";

}  // namespace

Credentials::Credentials(Secret token, std::string job, Transport transport)
    : token_(std::move(token)),
      job_(std::move(job)),
      transport_(transport),
      challenge_key_(derive_key(token_.bytes(), challenge_purpose)),
      hello_judge_(derive_key(token_.bytes(), tls_purpose)) {}

const TlsContext& Credentials::tls_client() const {
  return context(client_, TlsContext::Role::client);
}

const TlsContext& Credentials::tls_server() const {
  return context(server_, TlsContext::Role::server);
}

const TlsContext& Credentials::context(std::unique_ptr<TlsContext>& place, TlsContext::Role role) const {
  const std::lock_guard lock(mutex_);
  if (!place) place = std::make_unique<TlsContext>(role, derive_key(token_.bytes(), tls_purpose), job_);
  return *place;
}

}  // namespace ddprun
