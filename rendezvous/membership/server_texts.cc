#include "rendezvous/membership/server_texts.h"

#include <utility>

#include <fmt/format.h>

#include "common/printable.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {

ServerTexts::ServerTexts(std::string host, std::uint16_t port)
    : host_(std::move(host)), endpoint_(format_host_port(host_, port)) {}

std::string ServerTexts::waiting(const std::string& problem, std::chrono::milliseconds timeout) const {
  return fmt::format("no rendezvous server at {} yet ({}); trying for up to {}", endpoint_, problem,
                     duration_text(timeout));
}

std::string ServerTexts::unreachable(const std::string& problem, std::chrono::milliseconds elapsed) const {
  return fmt::format(
      "no rendezvous server answered at {} within {} ({}). The agent on host {} serves it: check that it runs with "
      "the same endpoint, that the name is right, and that the port can be reached from here",
      endpoint_, duration_text(elapsed), problem, host_);
}

std::string ServerTexts::unresolved(const std::string& problem, std::chrono::milliseconds elapsed) const {
  return fmt::format(
      "{} within {}, so the rendezvous endpoint {} cannot be reached: check the name and this host's "
      "/etc/resolv.conf and /etc/hosts, or give a numeric address",
      problem, duration_text(elapsed), endpoint_);
}

std::string ServerTexts::torch_store() const {
  return fmt::format(
      "the store at {} is served by torchrun or PyTorch, whose c10d rendezvous ddprun cannot join: start ddprun on "
      "every node, or set --rdzv_backend=static and --node_rank on every node",
      endpoint_);
}

std::string ServerTexts::not_a_server(std::string_view received) const {
  return fmt::format("{} is not a rendezvous server: it sent '{}'; does another program use the port?", endpoint_,
                     printable(received.substr(0, 32)));
}

std::string lost_server_text(const HostPort& server, const std::string& problem) {
  return fmt::format("lost the rendezvous server at {}: {}", format_host_port(server.host, server.port_or(0)), problem);
}

}  // namespace ddprun
