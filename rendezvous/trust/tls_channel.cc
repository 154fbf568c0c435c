#include "rendezvous/trust/tls_channel.h"

#include <algorithm>
#include <cstring>

#include <climits>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/error.h"
#include "rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

constexpr const char* suite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char suite_number[] = {0x13, 0x01};
constexpr std::size_t max_identity_bytes = 128;  // out of PSK_MAX_IDENTITY_LEN, so that a ClientHello stays short

// The reason of the error that OpenSSL reported first; empties its queue.
std::string reason() {
  const auto code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* text = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return text ? text : "no reason given";
}

void require_tls(bool ok, const char* what) {
  if (!ok) throw make_error(Errc::internal, "OpenSSL: {}: {}", what, reason());
}

using TlsSession = std::unique_ptr<SSL_SESSION, void (*)(SSL_SESSION*)>;

// Returns a session that has the key, and the cipher suite that names the hash for it. Null if OpenSSL fails.
SSL_SESSION* session_with(SSL* ssl, const Secret& key) {
  TlsSession session(::SSL_SESSION_new(), ::SSL_SESSION_free);
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, suite_number);
  const auto bytes = key.bytes();
  if (!session || !cipher || ::SSL_SESSION_set1_master_key(session.get(), bytes.data(), bytes.size()) != 1 ||
      ::SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      ::SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1)
    return nullptr;
  return session.release();
}

}  // namespace

struct TlsContext::Key {
  Secret secret;
  std::string identity;

  static const Key& of(SSL* ssl) { return *static_cast<const Key*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl))); }

  static int use(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* size, SSL_SESSION** session) {
    const Key& key = of(ssl);
    *id = reinterpret_cast<const unsigned char*>(key.identity.data());
    *size = key.identity.size();
    *session = session_with(ssl, key.secret);
    return *session ? 1 : 0;
  }

  static int find(SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** session) {
    *session = session_with(ssl, of(ssl).secret);
    return *session ? 1 : 0;
  }
};

TlsContext::TlsContext(Role role, Secret key, std::string_view identity)
    : role_(role),
      key_(new Key{std::move(key), std::string(identity.substr(0, max_identity_bytes))}),
      context_(::SSL_CTX_new(role == Role::server ? ::TLS_server_method() : ::TLS_client_method()), ::SSL_CTX_free) {
  auto* const c = context_.get();
  require_tls(c != nullptr, "a context");
  if (key_->identity.empty()) key_->identity = "none";
  require_tls(::SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1, "TLS 1.3");
  require_tls(::SSL_CTX_set_ciphersuites(c, suite) == 1, suite);
  require_tls(::SSL_CTX_set1_groups_list(c, "X25519") == 1, "X25519");
  // The mode for compatibility with middleboxes makes the handshake longer.
  ::SSL_CTX_clear_options(c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  ::SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  require_tls(::SSL_CTX_set_num_tickets(c, 0) == 1, "no tickets");
  require_tls(::SSL_CTX_set_max_early_data(c, 0) == 1, "no early data");
  ::SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);  // most connections are idle most of the time
  SSL_CTX_set_app_data(c, key_.get());
  if (role == Role::server) {
    ::SSL_CTX_set_psk_find_session_callback(c, &Key::find);
    return;
  }
  ::SSL_CTX_set_psk_use_session_callback(c, &Key::use);
  // The trust store is empty: no certificate is accepted. Without verification any would be, even without the key.
  ::SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
}

TlsContext::~TlsContext() = default;

TlsChannel::TlsChannel(const TlsContext& context)
    : role_(context.role()), ssl_(::SSL_new(context.context_.get()), ::SSL_free) {
  require_tls(ssl_ != nullptr, "a connection");
  BIO* const in = ::BIO_new(::BIO_s_mem());
  BIO* const out = ::BIO_new(::BIO_s_mem());
  ::SSL_set_bio(ssl_.get(), in, out);  // takes ownership of both
  require_tls(in && out, "buffers");
  ::BIO_set_mem_eof_return(in, -1);  // an empty buffer is not the end
  if (role_ == TlsContext::Role::client)
    ::SSL_set_connect_state(ssl_.get());
  else
    ::SSL_set_accept_state(ssl_.get());
}

TlsChannel::~TlsChannel() = default;

void TlsChannel::feed(std::string_view received) {
  while (!received.empty()) {
    const auto size = std::min<std::size_t>(received.size(), INT_MAX);
    require_tls(
        ::BIO_write(::SSL_get_rbio(ssl_.get()), received.data(), static_cast<int>(size)) == static_cast<int>(size),
        "a buffer");
    received.remove_prefix(size);
  }
}

bool TlsChannel::shake_hands() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  if (result == 1) {
    // The key was not used if a certificate was: a second check, besides the verification of certificates.
    if (::SSL_session_reused(ssl_.get()) != 1) throw AuthenticationError("TLS without the key of the job");
    return true;
  }
  if (::SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return false;
  throw AuthenticationError(fmt::format("{} does not know the token of the job (TLS: {})",
                                        role_ == TlsContext::Role::client ? "the server" : "the client", reason()));
}

void TlsChannel::write(std::string_view text) {
  ::ERR_clear_error();
  std::size_t written = 0;
  if (!text.empty() && ::SSL_write_ex(ssl_.get(), text.data(), text.size(), &written) != 1)
    throw make_error(Errc::protocol, "TLS: {}", reason());
}

void TlsChannel::read(std::string& text) {
  char record[16 << 10];  // NOLINT(cppcoreguidelines-pro-type-member-init): OpenSSL fills it
  ::ERR_clear_error();
  for (;;) {
    std::size_t got = 0;
    const int result = ::SSL_read_ex(ssl_.get(), record, sizeof record, &got);
    if (result == 1) {
      text.append(record, got);
      if (::SSL_has_pending(ssl_.get()) == 0 && ::BIO_ctrl_pending(::SSL_get_rbio(ssl_.get())) == 0) return;
      continue;
    }
    switch (::SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return;
      case SSL_ERROR_ZERO_RETURN:
        throw Error(Errc::connection_lost, "the peer closed the TLS connection");
      default:
        throw make_error(Errc::protocol, "TLS: {}", reason());
    }
  }
}

std::string TlsChannel::take_output() {
  BIO* const out = ::SSL_get_wbio(ssl_.get());
  std::string bytes(::BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) ::BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

}  // namespace ddprun
