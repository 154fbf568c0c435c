#include "ddprun/launcher/meeting.h"

#include "ddprun/common/error.h"
#include "ddprun/launcher/lone_rendezvous.h"

namespace ddprun {

void arrange_meeting(AgentSpec& spec, const RendezvousChoice& choice) {
  if (!choice.standalone) throw make_error(Errc::unsupported, "a job of several nodes is not supported yet");
  spec.open_rendezvous = open_lone_rendezvous;
}

}  // namespace ddprun
