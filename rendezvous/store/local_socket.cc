#include "rendezvous/store/local_socket.h"

#include <cerrno>
#include <sys/socket.h>

#include <fmt/format.h>

#include "common/error.h"
#include "common/unix_socket.h"

namespace ddprun::rendezvous {

std::string store_socket_value(std::string_view path, std::uint16_t master_port) {
  return fmt::format("{}:{}", master_port, path);
}

std::string store_socket_path(std::string_view value, std::uint16_t master_port) {
  const auto port = fmt::format("{}:", master_port);
  return value.starts_with(port) ? std::string(value.substr(port.size())) : "";
}

UniqueFd connect_local(const std::string& path, std::uint16_t master_port) {
  auto socket = connect_unix(path);
  const auto line = fmt::format("{} {}\n", store_request, master_port);
  // The buffer of a new connection has space for it.
  if (!socket || ::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0)
    throw make_error(Errc::unreachable, "{}: {}", path, errno_text(errno));
  return socket;
}

}  // namespace ddprun::rendezvous
