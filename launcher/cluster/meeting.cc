#include "ddprun/launcher/cluster/meeting.h"

#include "ddprun/rendezvous/backend.h"

namespace ddprun {

void arrange_meeting(AgentSpec& spec, const RendezvousChoice& choice) {
  const BackendOptions options{.backend = name_of(choice.backend),
                               .standalone = choice.standalone,
                               .host = choice.host,
                               .port = choice.port,
                               .is_host = choice.is_host,
                               .node_rank = choice.node_rank,
                               .store_timeout = choice.store_timeout,
                               .more_endpoints = choice.more_endpoints,
                               .etcd_prefix = choice.etcd_prefix};
  spec.open_rendezvous = [options](boost::asio::io_context& loop) { return open_rendezvous(loop, options); };
}

}  // namespace ddprun
