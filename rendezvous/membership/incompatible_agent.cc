#include "rendezvous/membership/incompatible_agent.h"

#include <fmt/format.h>

#include "common/printable.h"

namespace ddprun {
namespace {

constexpr std::string_view torchrun_c10d_prefix = "/torch.rendezvous.";
constexpr std::string_view role_info = "/torchelastic/role_info/";

}  // namespace

std::optional<IncompatibleAgent> parse_incompatible_agent(std::string_view key, std::string_view value) {
  if (key.starts_with(torchrun_c10d_prefix))
    return IncompatibleAgent{.kind = IncompatibleAgent::Kind::torchrun_c10d,
                             .run_id = std::string(key.substr(torchrun_c10d_prefix.size()))};
  const auto at = key.rfind(role_info);
  if (at == std::string_view::npos || at == 0 || !key.starts_with('/')) return std::nullopt;
  return IncompatibleAgent{.kind = IncompatibleAgent::Kind::static_,
                           .run_id = std::string(key.substr(1, at - 1)),
                           .ddprun = value.find("\"ddprun\"") != std::string_view::npos};
}

std::string conflict_text(const IncompatibleAgent& agent) {
  const std::string run_id = printable(agent.run_id);
  if (agent.kind == IncompatibleAgent::Kind::torchrun_c10d)
    return fmt::format(
        "an agent of torchrun on {} uses run id '{}' at this endpoint with --rdzv_backend=c10d, whose protocol is "
        "torchrun's own: start ddprun on every node, or set --rdzv_backend=static and --node_rank on every node",
        agent.address, run_id);
  return fmt::format(
      "an agent on {} uses run id '{}' at this endpoint with --rdzv_backend=static, this node with c10d: set the same "
      "--rdzv_backend on every node, or another --rdzv_id for another job",
      agent.address, run_id);
}

std::string refusal_text(const IncompatibleAgent& agent) {
  const std::string run_id = printable(agent.run_id);
  if (agent.kind == IncompatibleAgent::Kind::torchrun_c10d)
    return fmt::format(
        "torchrun's --rdzv_backend=c10d cannot join run id '{}', which a ddprun agent uses: start ddprun on every "
        "node, or set --rdzv_backend=static and --node_rank on every node",
        run_id);
  return fmt::format(
      "run id '{}' is in use at this endpoint with --rdzv_backend=c10d, this node has static: set the same "
      "--rdzv_backend on every node, or another --rdzv_id for another job",
      run_id);
}

std::string static_refusal_wire_key(std::string_view run_id) {
  return fmt::format("/{}/{}", run_id, static_refusal_key);
}

}  // namespace ddprun
