#pragma once

#include "ddprun/worker/comm/bootstrap/host_map.h"

namespace ddprun::comm {

// What lies between the ranks of a mesh: whether some of them send to other hosts over one and the same link.
enum class Links { own, shared };

inline Links links_between(const HostMap& hosts) {
  return hosts.hosts() > 1 && hosts.largest_host() > 1 ? Links::shared : Links::own;
}

}  // namespace ddprun::comm
