#include "worker/comm/elastic/agreement.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

namespace ddprun::comm {
namespace {

constexpr std::string_view commit = "commit";
constexpr std::string_view cancel = "cancel\n";  // the reason follows
constexpr std::string_view differ = "differ\n";  // does what cancel does: the members' options differ

Agreement::Decide cancellation(std::string_view reason) {
  return {std::string(cancel) + std::string(reason)};
}

std::string joined(const std::vector<std::string>& members) {
  return fmt::format("{}", fmt::join(members, ", "));
}

struct Proposal {
  ConfigClaim proposer;
  std::vector<std::string> members;
};

// The claim's two lines, and a line for each member.
std::string encode(const Proposal& proposal) {
  return fmt::format("{}\n{}", encode(proposal.proposer), fmt::join(proposal.members, "\n"));
}

Proposal decode_proposal(std::string_view text) {
  const auto next_line = [&text] {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return std::string(line);
  };
  const auto who = next_line(), config = next_line();
  Proposal result{.proposer = decode_claim(who + '\n' + config)};
  while (!text.empty()) result.members.push_back(next_line());
  return result;
}

void check_members(std::uint64_t generation, const std::vector<std::string>& members, const std::string& self) {
  const auto refuse = [&](const std::string& why) {
    return make_error(Errc::usage, "generation {} cannot have the members [{}]: {}", generation, joined(members), why);
  };
  if (members.empty()) throw refuse("a group needs at least one member");
  std::set<std::string> seen;
  for (const auto& member : members) {
    if (member.empty() || member.find('\n') != std::string::npos)
      throw refuse("a name is one line of text, and not empty");
    if (!seen.insert(member).second) throw refuse(member + " is listed twice");
  }
  if (!seen.contains(self)) throw refuse(fmt::format("this process, {}, is not in the list", self));
}

}  // namespace

Agreement::Agreement(std::uint64_t generation, std::vector<std::string> members, std::string self, std::string identity,
                     GroupConfig config)
    : generation_(generation),
      members_(std::move(members)),
      self_(std::move(self)),
      identity_(std::move(identity)),
      config_(std::move(config)) {
  check_members(generation_, members_, self_);
  position_ = static_cast<int>(std::find(members_.begin(), members_.end(), self_) - members_.begin());
}

std::string Agreement::who() const {
  return fmt::format("member {} ({})", self_, identity_);
}

Agreement::Request Agreement::begin() const {
  const auto loss = fmt::format("{} was lost: its process died or its connection broke", who());
  return Propose{encode(Proposal{{who(), config_}, members_}), cancellation(loss).text};
}

Agreement::Request Agreement::proposed(const std::optional<std::string>& decision, std::string_view text) {
  if (decision == commit) {
    return Failed{make_error(Errc::usage, "generation {} has been formed before: each new group needs a higher number",
                             generation_)};
  }
  if (decision) {
    ++attempt_;
    return begin();
  }
  const auto [proposer, members] = decode_proposal(text);
  if (members != members_) {
    return cancellation(fmt::format("{} proposes the members [{}], {} proposes [{}]", proposer.who, joined(members),
                                    who(), joined(members_)));
  }
  if (const auto difference = describe_mismatch(proposer, {who(), config_}))
    return Decide{std::string(differ) + *difference};
  return Join{};
}

Agreement::Request Agreement::counted(std::int64_t count) const {
  if (count == static_cast<std::int64_t>(members_.size())) return Decide{std::string(commit)};
  return Await{};
}

Agreement::Request Agreement::decided(std::string_view text) const {
  if (text == commit) return Committed{};
  const bool options_differ = text.starts_with(differ);
  const auto prefix = options_differ ? differ : cancel;
  const auto reason = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  return Failed{make_error(options_differ ? Errc::mismatch : Errc::aborted,
                           "generation {} was not formed, and the current group is unchanged: {}", generation_,
                           reason)};
}

Agreement::Request Agreement::lost(const std::string& member, const std::string& process,
                                   const std::string& cause) const {
  return cancellation(fmt::format("member {} ({}) is gone: {}", member, process, cause));
}

Agreement::Request Agreement::aborted() const {
  return cancellation(who() + " was aborted by its program");
}

Agreement::Request Agreement::deadline_passed(const std::vector<std::string>& missing, double seconds) const {
  if (missing.empty()) return cancellation(fmt::format("{} waited {:.1f} s for the decision", who(), seconds));
  return cancellation(fmt::format("{} waited {:.1f} s for member{} {}", who(), seconds, missing.size() == 1 ? "" : "s",
                                  joined(missing)));
}

}  // namespace ddprun::comm
