#include "rendezvous/backend.h"

#include <array>
#include <string_view>

#include "common/error.h"

namespace ddprun {

#define BACKEND(name) OpenBackend open_##name;
#include "backend_rows.inc"
#undef BACKEND

namespace {

struct BackendEntry {
  std::string_view name;
  OpenBackend* open;
};
constexpr auto table = std::to_array<BackendEntry>({
#define BACKEND(name) {#name, open_##name},
#include "backend_rows.inc"
#undef BACKEND
});

std::string names() {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == table.size() ? " or " : ", ", table[i].name);
  return text;
}

}  // namespace

std::unique_ptr<RendezvousBackend> open_rendezvous(boost::asio::io_context& loop, const BackendOptions& options) {
  for (const auto& row : table)
    if (row.name == options.backend) return row.open(loop, options);
  const bool known_to_torchrun = options.backend == "etcd-v2";
  throw make_error(known_to_torchrun ? Errc::unsupported : Errc::usage, "--rdzv_backend {} is {}; use {}",
                   options.backend, known_to_torchrun ? "not supported" : "unknown", names());
}

}  // namespace ddprun
