#include "ddprun/rendezvous/backends/backends.h"

#include <array>
#include <string_view>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/backends/c10d_backend.h"
#include "ddprun/rendezvous/backends/etcd_backend.h"
#include "ddprun/rendezvous/backends/static_rendezvous.h"

namespace ddprun {
namespace {

using Open = std::unique_ptr<RendezvousBackend> (*)(boost::asio::io_context&, const BackendOptions&);

// One line a back end; without a function, one that torchrun has and we do not.
struct Row {
  std::string_view name;
  Open open;
};
constexpr std::array<Row, 4> table = {{
    {"c10d", open_c10d},
    {"static", open_static},
    {"etcd", open_etcd},
    {"etcd-v2", nullptr},
}};

}  // namespace

std::unique_ptr<RendezvousBackend> open_rendezvous(boost::asio::io_context& loop, const BackendOptions& options) {
  for (const auto& row : table) {
    if (row.name != options.backend) continue;
    if (row.open) return row.open(loop, options);
    throw make_error(Errc::unsupported, "--rdzv_backend {} is not supported; use c10d, static or etcd",
                     options.backend);
  }
  throw make_error(Errc::usage, "--rdzv_backend {}: unknown; use c10d, static or etcd", options.backend);
}

}  // namespace ddprun
