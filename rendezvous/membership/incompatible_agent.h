#pragma once

#include <optional>
#include <string>
#include <string_view>

// Agents of another rendezvous at a rendezvous server's endpoint, recognised by the keys that they write to its store.
namespace ddprun {

struct IncompatibleAgent {
  enum class Kind {
    torchrun_c10d,  // torchrun's own c10d rendezvous, which ddprun does not implement
    static_,        // --rdzv_backend=static, torchrun's or ddprun's
  };
  Kind kind = Kind::static_;
  std::string run_id;
  bool ddprun = false;
  std::string address;  // the address of its host
};

// The agent that writes this key; nullopt for any other key. Keys are as on the wire, with a leading slash. address is
// left empty.
std::optional<IncompatibleAgent> parse_incompatible_agent(std::string_view key, std::string_view value);

// Returns why an agent with ddprun's c10d back end cannot use this run id, and what to set instead.
std::string conflict_text(const IncompatibleAgent& agent);
// Returns why this agent cannot use its run id, and what to set instead.
std::string refusal_text(const IncompatibleAgent& agent);

// The key by which a rendezvous server notifies a static ddprun agent that it is refused; the value is the reason.
inline constexpr std::string_view static_refusal_key = "torchelastic/ddprun_refused";  // within the run id's prefix
std::string static_refusal_wire_key(std::string_view run_id);

}  // namespace ddprun
