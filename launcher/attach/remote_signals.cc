#include "launcher/attach/remote_signals.h"

#include <utility>

#include <fmt/format.h>

namespace ddprun {

void RemoteSignals::ask(int rank, const RequestedSignal& signal, Reply reply) {
  if (pending_.size() >= max_pending)
    return reply(fmt::format("{} signals to ranks of other hosts have not been answered yet", pending_.size()));
  const SignalRank message{.number = ++last_number_, .rank = rank, .signal = signal};
  if (const auto why = send_(message); !why.empty())
    return reply(fmt::format("rank {} is not on this node, and {}", rank, why));
  pending_.emplace(message.number, std::move(reply));
}

void RemoteSignals::answered(const SignalAnswer& answer) {
  const auto found = pending_.extract(answer.number);
  if (!found.empty()) found.mapped()(answer.problem);
}

void RemoteSignals::session_began() {
  for (const auto& [number, reply] : std::exchange(pending_, {}))
    reply("the connection to the rendezvous server was lost; the signal may have been sent");
}

}  // namespace ddprun
