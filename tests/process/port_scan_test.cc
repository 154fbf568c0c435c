#include <limits>

#include "common/bytes.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/process/nodes.h"
#include "tests/support/catch.h"
#include "tests/support/hex.h"
#include "tests/support/raw_socket.h"

// A port scan of a running job's ports.
using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t four_gib = std::uint64_t{1} << 32;

std::string with_length(std::string bytes, std::uint64_t length) {
  put_le(bytes, length);
  return bytes;
}

// The server answers each by closing the connection.
std::vector<std::string> invalid_openings() {
  const auto validate = rendezvous::encode(rendezvous::ValidateRequest{});
  return {
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
      from_hex("16 03 01 02 00 01 00 01 FC 03 03") + std::string(506, 'x'),  // TLS: a ClientHello
      "SSH-2.0-OpenSSH_9.2\r\n",
      std::string(4096, '\0'),
      std::string(4096, '\xFF'),
      with_length(from_hex("01"), four_gib),             // before PyTorch 2.2: SET, and a key of 4 GiB
      with_length(validate + from_hex("01"), four_gib),  // the same key size after a valid first message
      with_length(validate + from_hex("01 01 00 00 00 00 00 00 00 6B"), four_gib),  // a value
      with_length(validate + from_hex("06"), four_gib),                             // this number of keys
      with_length(validate + from_hex("80"), four_gib),                             // a session's frame
      with_length(validate + from_hex("80"), 16) + "GET / HTTP/1.1\r\n",
      with_length(validate + from_hex("01"), std::numeric_limits<std::uint64_t>::max()),
  };
}

// Sends everything above, and leaves connections open that are silent or stop in the middle of a message.
struct PortScan {
  explicit PortScan(std::uint16_t port) {
    for (const auto& bytes : invalid_openings()) {
      RawSocket socket(port);
      socket.send(bytes);
      CHECK(socket.closed_by_server());
    }
    for (int i = 0; i < 20; ++i) {
      RawSocket(port).close();
      reset(RawSocket(port));
      half_open.emplace_back(port);
      half_open.emplace_back(port).send(from_hex("00 CE"));
      half_open.push_back(RawSocket::validated(port));
      half_open.back().send(from_hex("01 00 10 00 00 00 00 00 00 6B"));  // one byte of a key of 4096
    }
  }
  std::vector<RawSocket> half_open;

 private:
  static void reset(RawSocket socket) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(::setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  }
};

// Returns the peak resident set of a process in MiB.
long peak_mib(pid_t pid) {
  const auto status = proc_text(std::to_string(pid), "status");
  const auto at = status.find("VmHWM:");
  REQUIRE(at != std::string::npos);
  return std::atol(status.c_str() + at + 6) / 1024;
}

std::uint16_t port_of(const Node& node, const std::string& variable) {
  return static_cast<std::uint16_t>(node.number(variable));
}

// Uses the store as a worker does.
void check_serves(const Node& node) {
  const auto soon = Deadline::in(20s);
  TcpStore store({.host = node.variable("MASTER_ADDR"), .port = port_of(node, "MASTER_PORT")}, soon);
  store.set("after the scan", "here", soon);
  CHECK(store.get("after the scan", soon) == "here");
}

}  // namespace

TEST_CASE("a port scan of the endpoint and of the workers' store affects no client and leaks no memory") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto host = job.host();
  host.wait_for_round(1);
  const auto endpoint_port = static_cast<std::uint16_t>(std::stoi(job.endpoint.substr(job.endpoint.rfind(':') + 1)));
  REQUIRE(port_of(host, "MASTER_PORT") != endpoint_port);
  const PortScan endpoint(endpoint_port), workers_store(port_of(host, "MASTER_PORT"));
  check_serves(host);

  // The endpoint still accepts nodes; only the new node causes a round.
  auto guest = job.guest();
  for (auto* node : {&host, &guest}) node->wait_for_round(2);
  CHECK(host.generation() == 1);
  const PortScan next_store(port_of(host, "MASTER_PORT"));
  check_serves(guest);
  CHECK(peak_mib(host.pid()) < 128);

  job.finish();
  CHECK(host.wait().code == 0);
  CHECK(guest.wait().code == 0);
  CHECK(host.generation() == 1);
  CHECK(host.has_logged("closed the connection of 127.0.0.1"));
}
