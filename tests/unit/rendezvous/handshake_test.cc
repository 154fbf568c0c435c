// Both sides of the authentication of a connection, in memory.
#include <optional>
#include <string>
#include <utility>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "common/error.h"
#include "rendezvous/trust/authentication_error.h"
#include "rendezvous/trust/client_handshake.h"
#include "rendezvous/trust/key_derivation.h"
#include "rendezvous/trust/server_handshake.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Transport = Credentials::Transport;

namespace {

Credentials credentials(unsigned char fill, Transport transport, std::string job = "job 42") {
  Secret::Bytes bytes;
  bytes.fill(fill);
  return {Secret(bytes), std::move(job), transport};
}

struct Result {
  std::string client_error, server_error;
  bool client_complete = false;
  bool admitted = false;
  std::size_t client_bytes = 0;
  std::string transcript;  // the bytes that the client sent
};

// Carries the bytes in pieces of at most step bytes until both sides are idle.
Result shake(ClientHandshake& client, ServerHandshake& server, std::size_t step = 4096) {
  Result result;
  const auto to_server = [&](std::string_view bytes) {
    result.transcript += bytes;
    result.client_bytes += bytes.size();
    for (std::size_t at = 0; at < bytes.size() && result.server_error.empty(); at += step) {
      const auto state = server.feed(bytes.substr(at, step));
      result.admitted = state == ServerHandshake::State::admitted;
      if (state == ServerHandshake::State::refused) result.server_error = server.reason();
    }
  };
  const auto to_client = [&](std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size() && result.client_error.empty(); at += step) try {
        client.feed(bytes.substr(at, step));
      } catch (const AuthenticationError& e) {
        result.client_error = e.what();
      }
  };
  for (int round = 0; round < 4; ++round) {
    to_server(client.take_output());
    to_client(server.take_output());
  }
  result.client_complete = result.client_error.empty() && client.is_complete();
  return result;
}

Result shake(const Credentials& client, const Credentials& server, std::size_t step = 4096) {
  ClientHandshake c(client);
  SeenHellos seen;
  ServerHandshake s(&server, seen);
  return shake(c, s, step);
}

}  // namespace

TEST_CASE("who knows the token is admitted, whatever pieces the bytes come in") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  const auto step = GENERATE(1, 7, 4096);
  const auto known = credentials(1, transport);
  const auto result = shake(known, known, static_cast<std::size_t>(step));
  CHECK(result.client_complete);
  CHECK(result.admitted);
  CHECK(result.client_bytes < ServerHandshake::max_bytes);
}

TEST_CASE("a handshake with the longest job id stays within the limit before authentication") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  const auto known = credentials(1, transport, std::string(1000, 'j'));
  const auto result = shake(known, known);
  CHECK(result.admitted);
  CHECK(result.client_bytes < ServerHandshake::max_bytes);
}

TEST_CASE("a wrong token is refused on both sides") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  const auto result = shake(credentials(1, transport), credentials(2, transport));
  CHECK_FALSE(result.client_complete);
  CHECK_FALSE(result.admitted);
  CHECK_FALSE(result.client_error.empty());
}

TEST_CASE("the messages of an admitted client are of no use to another") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  const auto known = credentials(1, transport);
  const auto recorded = shake(known, known).transcript;
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  CHECK(server.feed(recorded) == ServerHandshake::State::refused);
}

TEST_CASE("the code that a server sends does not admit a client that returns it") {
  const auto known = credentials(1, Transport::clear);
  ClientHandshake client(known);
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  REQUIRE(server.feed(client.take_output()) == ServerHandshake::State::open);
  const auto answer = server.take_output();
  CHECK(server.feed(answer.substr(answer.size() - 32)) == ServerHandshake::State::refused);
}

TEST_CASE("a challenge for another job is refused") {
  const auto result = shake(credentials(1, Transport::clear, "a"), credentials(1, Transport::clear, "b"));
  CHECK_FALSE(result.admitted);
  CHECK(result.server_error.find("another job") != std::string::npos);
}

TEST_CASE("client and server have to agree on encryption") {
  const auto tls = shake(credentials(1, Transport::tls), credentials(1, Transport::clear));
  CHECK(tls.server_error.find("tls=off") != std::string::npos);
  const auto clear = shake(credentials(1, Transport::clear), credentials(1, Transport::tls));
  CHECK(clear.server_error.find("tls=off") != std::string::npos);
}

TEST_CASE("a server without a token admits nobody by one") {
  const auto known = credentials(1, GENERATE(Transport::tls, Transport::clear));
  ClientHandshake client(known);
  SeenHellos seen;
  ServerHandshake server(nullptr, seen);
  CHECK(server.feed(client.take_output()) == ServerHandshake::State::refused);
}

TEST_CASE("a plain client is recognised by its first byte and loses none") {
  const auto known = credentials(1, Transport::tls);
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  CHECK(server.feed(std::string("\0\xce\xf7", 3)) == ServerHandshake::State::plain);
  CHECK(server.take_rest() == std::string("\0\xce\xf7", 3));
}

TEST_CASE("a client that never completes is refused after 512 bytes") {
  const auto known = credentials(1, Transport::tls);
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  // The first message has 512 bytes, of which all but one arrive.
  std::string bytes("\x16\x03\x01\x01\xfb\x01\x00\x01\xf7", 9);
  bytes.resize(ServerHandshake::max_bytes - 1, 'a');
  REQUIRE(server.feed(bytes) == ServerHandshake::State::open);
  CHECK(server.capacity() == 1);
  CHECK(server.feed("a") == ServerHandshake::State::refused);
}

TEST_CASE("what cannot become a first message of TLS is refused before it is complete") {
  const auto known = credentials(1, Transport::tls);
  const auto bytes = GENERATE(as<std::string>(), "\x16\x02", std::string("\x16\x03\x01\x01\xfc", 5),
                              std::string("\x16\x03\x01\x00\x20\x02", 6), std::string("\x16\x03\x01\x00\x00\x00", 6));
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  CHECK(server.feed(bytes) == ServerHandshake::State::refused);
}

TEST_CASE("the first message of an admitted client is refused when it comes again") {
  const auto known = credentials(1, Transport::tls);
  const auto hello = ClientHandshake(known).take_output();
  SeenHellos seen;
  ServerHandshake first(&known, seen), second(&known, seen);
  CHECK(first.feed(hello) == ServerHandshake::State::open);
  CHECK_FALSE(first.take_output().empty());
  CHECK(second.feed(hello) == ServerHandshake::State::refused);
  CHECK(second.take_output().empty());
  ServerHandshake third(&known, seen);
  CHECK(third.feed(ClientHandshake(known).take_output()) == ServerHandshake::State::open);
}

TEST_CASE("bytes after the first message have one result, together with it or apart") {
  const auto known = credentials(1, Transport::tls);
  const auto hello = ClientHandshake(known).take_output();
  const std::string begun("\x17\x03\x03\x00\x36", 5), wrong = begun + std::string(0x36, 'w');
  for (const auto& [after, expected] :
       {std::pair(begun, ServerHandshake::State::open), std::pair(wrong, ServerHandshake::State::refused)}) {
    SeenHellos seen_once, seen_twice;
    ServerHandshake together(&known, seen_once), apart(&known, seen_twice);
    CHECK(together.feed(hello + after) == expected);
    CHECK(apart.feed(hello) == ServerHandshake::State::open);
    CHECK(apart.feed(after) == expected);
  }
}

TEST_CASE("any changed bit of a first message is noticed before TLS begins") {
  const auto known = credentials(1, Transport::tls);
  const auto hello = ClientHandshake(known).take_output();
  REQUIRE(known.hello_judge().judge(hello, ServerHandshake::max_bytes).kind == HelloVerdict::Kind::right);
  for (std::size_t at = 0; at < hello.size(); ++at) {
    auto changed = hello;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const auto verdict = known.hello_judge().judge(changed, ServerHandshake::max_bytes);
    // The code covers the message, not the version and type of the record around it.
    CHECK((at < 5 || verdict.kind == HelloVerdict::Kind::wrong));
  }
  const auto other = credentials(2, Transport::tls);
  CHECK(other.hello_judge().judge(hello, ServerHandshake::max_bytes).kind == HelloVerdict::Kind::wrong);
}

TEST_CASE("the first messages that a server remembers are limited") {
  SeenHellos seen;
  const auto code = [](std::uint64_t number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (std::uint64_t i = 0; i <= SeenHellos::limit; ++i) CHECK(seen.insert(code(i)));
  CHECK_FALSE(seen.insert(code(1)));
  CHECK(seen.insert(code(0)));  // the oldest is forgotten
}

TEST_CASE("what follows a TLS handshake is carried, large and small, and its end is noticed") {
  const auto known = credentials(1, Transport::tls);
  ClientHandshake client(known);
  SeenHellos seen;
  ServerHandshake server(&known, seen);
  REQUIRE(shake(client, server).admitted);
  const auto a = client.take_channel(), b = server.take_channel();
  for (const std::size_t size : {1UL, 16'384UL, 1'000'000UL}) {
    const std::string text(size, 'x');
    a->write(text);
    const auto wire = a->take_output();
    CHECK(wire.find("xxxxxxxx") == std::string::npos);
    b->feed(wire);
    std::string got;
    b->read(got);
    CHECK(got == text);
  }
  a->write("changed on its way");
  auto wire = a->take_output();
  wire.back() ^= 1;
  b->feed(wire);
  std::string got;
  CHECK_THROWS_AS(b->read(got), Error);
  CHECK(got.empty());
}

namespace {

using Context = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

// Returns a server that does not know the key and has a self-signed certificate.
Context stranger() {
  Context context(::SSL_CTX_new(::TLS_server_method()), ::SSL_CTX_free);
  const PrivateKey key(EVP_EC_gen("P-256"), ::EVP_PKEY_free);
  const Certificate certificate(::X509_new(), ::X509_free);
  auto* const x = certificate.get();
  ::X509_gmtime_adj(X509_getm_notBefore(x), 0);
  ::X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  ::X509_set_pubkey(x, key.get());
  ::X509_set_issuer_name(x, ::X509_get_subject_name(x));
  REQUIRE(::X509_sign(x, key.get(), ::EVP_sha256()) > 0);
  REQUIRE(::SSL_CTX_use_certificate(context.get(), x) == 1);
  REQUIRE(::SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  return context;
}

}  // namespace

TEST_CASE("a server with a certificate and without the key is refused by a client") {
  const auto known = credentials(1, Transport::tls);
  const auto context = stranger();
  const std::unique_ptr<SSL, void (*)(SSL*)> server(::SSL_new(context.get()), ::SSL_free);
  BIO* const in = ::BIO_new(::BIO_s_mem());
  BIO* const out = ::BIO_new(::BIO_s_mem());
  ::SSL_set_bio(server.get(), in, out);
  ::SSL_set_accept_state(server.get());
  ClientHandshake client(known);
  std::string error;
  for (int round = 0; round < 4 && error.empty(); ++round) {
    const auto sent = client.take_output();
    if (!sent.empty()) ::BIO_write(in, sent.data(), static_cast<int>(sent.size()));
    ::SSL_do_handshake(server.get());
    std::string answer(::BIO_ctrl_pending(out), '\0');
    if (answer.empty()) break;
    ::BIO_read(out, answer.data(), static_cast<int>(answer.size()));
    try {
      client.feed(answer);
    } catch (const AuthenticationError& e) {
      error = e.what();
    }
  }
  CHECK_FALSE(client.is_complete());
  CHECK(error.find("does not know the token") != std::string::npos);
}
