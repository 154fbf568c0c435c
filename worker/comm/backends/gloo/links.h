#pragma once

#include "worker/comm/bootstrap/host_map.h"

namespace ddprun::comm {

// The links are shared if several ranks of a mesh send to other hosts over the same network link.
enum class Links { own, shared };

inline Links links_between(const HostMap& hosts) {
  return hosts.hosts() > 1 && hosts.largest_host() > 1 ? Links::shared : Links::own;
}

}  // namespace ddprun::comm
