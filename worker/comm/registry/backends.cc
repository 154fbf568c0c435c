#include "worker/comm/registry/backends.h"

#include <algorithm>
#include <array>
#include <string>

#include "common/error.h"
#include "worker/comm/backends/gloo/gloo_group.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/backends/mpi/mpi_group.h"
#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/backends/nccl/nccl_group.h"
#include "worker/comm/backends/shm/shm_group.h"
#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/registry/auto_group.h"
#include "worker/comm/registry/device_group.h"
#include "worker/comm/registry/host_group.h"

namespace ddprun::comm {
namespace {

bool always() {
  return true;
}

std::unique_ptr<ProcessGroup> make_self(const GroupOptions& options) {
  if (options.size != 1) {
    throw make_error(Errc::usage, "the self back end is for a world of 1, not of {}: use gloo", options.size);
  }
  return make_self_group();
}

std::unique_ptr<ProcessGroup> make_named_nccl(const GroupOptions& options) {
  return make_nccl_group(options, options.config.device.value(), "requested by name");
}

constexpr std::array table = {
    Backend{"auto", always, make_auto_group},
    Backend{"self", always, make_self},
    Backend{"gloo", always, make_gloo_group},
    Backend{"shm", always, make_shm_group},
    Backend{"hierarchical", always, make_hierarchical_group},
    Backend{"mpi", mpi_available, make_mpi_group},
    Backend{"nccl", nccl_available, make_nccl_group},
};

}  // namespace

std::span<const Backend> backends() {
  return table;
}

const Backend& find_backend(std::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const Backend& each) { return each.name == name; });
  if (row != table.end()) return *row;
  std::string names;
  for (const auto& each : table) names += (names.empty() ? "" : ", ") + std::string(each.name);
  throw make_error(Errc::usage, "there is no back end named {}; there are {}", name, names);
}

std::unique_ptr<ProcessGroup> make_group(std::string_view name, const GroupOptions& options) {
  check(options);
  const auto& backend = find_backend(name);
  if (!options.config.device || name == "auto") return backend.make(options);
  if (name == "nccl") return make_device_group(make_host_group(host_options(options)), options, make_named_nccl);
  const auto make_staged = [&](const GroupOptions& given) {
    return make_staged_group(backend.make(host_options(given)), staged_options(given));
  };
  return make_device_group(backend.make(host_options(options)), options, make_staged);
}

}  // namespace ddprun::comm
