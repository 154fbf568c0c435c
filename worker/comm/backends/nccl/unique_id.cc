#include "ddprun/worker/comm/backends/nccl/unique_id.h"

#include <cstring>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/nccl/nccl_names.h"

namespace ddprun::comm {

ncclUniqueId make_unique_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "making an id");
  return id;
}

std::string text_of(const ncclUniqueId& id) {
  return {id.internal, sizeof id.internal};
}

ncclUniqueId unique_id_from(std::string_view text) {
  ncclUniqueId id;
  if (text.size() != sizeof id.internal) throw Error(Errc::usage, "the ranks have different versions of NCCL");
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

}  // namespace ddprun::comm
