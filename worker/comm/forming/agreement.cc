#include "ddprun/worker/comm/forming/agreement.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

namespace ddprun::comm {
namespace {

constexpr std::string_view commit = "commit";
constexpr std::string_view cancel = "cancel\n";  // the reason follows

Agreement::Decide cancelled(std::string_view reason) {
  return {std::string(cancel) + std::string(reason)};
}

std::string joined(const std::vector<std::string>& members) {
  return fmt::format("{}", fmt::join(members, ", "));
}

// A member a line, behind who proposes.
std::string proposal(const std::string& proposer, const std::vector<std::string>& members) {
  return fmt::format("{}\n{}", proposer, fmt::join(members, "\n"));
}

struct Proposal {
  std::string proposer;
  std::vector<std::string> members;
};
Proposal parse_proposal(std::string_view text) {
  Proposal result;
  bool first = true;
  while (true) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    if (first) {
      result.proposer = line;
    } else {
      result.members.push_back(line);
    }
    first = false;
    if (end == text.size()) return result;
    text.remove_prefix(end + 1);
  }
}

void check_members(std::uint64_t generation, const std::vector<std::string>& members, const std::string& self) {
  const auto refuse = [&](const std::string& why) {
    return make_error(Errc::usage, "generation {} cannot have the members [{}]: {}", generation, joined(members), why);
  };
  if (members.empty()) throw refuse("a group needs at least one");
  std::set<std::string> seen;
  for (const auto& member : members) {
    if (member.empty() || member.find('\n') != std::string::npos)
      throw refuse("a name is a line of text, and not empty");
    if (!seen.insert(member).second) throw refuse(member + " is named twice");
  }
  if (!seen.contains(self)) throw refuse(fmt::format("this process, {}, is not among them", self));
}

}  // namespace

Agreement::Agreement(std::uint64_t generation, std::vector<std::string> members, std::string self, std::string identity)
    : generation_(generation), members_(std::move(members)), self_(std::move(self)), identity_(std::move(identity)) {
  check_members(generation_, members_, self_);
  position_ = static_cast<int>(std::find(members_.begin(), members_.end(), self_) - members_.begin());
}

std::string Agreement::who() const {
  return fmt::format("member {} ({})", self_, identity_);
}

Agreement::Request Agreement::looked(const std::optional<std::string>& decision) {
  if (!decision) return Propose{proposal(who(), members_)};
  if (*decision == commit) {
    return Failed{make_error(
        Errc::usage, "generation {} has been formed before: each new group needs a number of its own", generation_)};
  }
  ++attempt_;
  return Look{};
}

Agreement::Request Agreement::proposed(std::string_view text) const {
  const auto [proposer, members] = parse_proposal(text);
  if (members == members_)
    return CountIn{cancelled(fmt::format("{} was lost: its process died or its connection broke", who())).text};
  return cancelled(fmt::format("{} proposes the members [{}], {} proposes [{}]", proposer, joined(members), who(),
                               joined(members_)));
}

Agreement::Request Agreement::counted(std::int64_t count) const {
  if (count == static_cast<std::int64_t>(members_.size())) return Decide{std::string(commit)};
  return Await{};
}

Agreement::Request Agreement::decided(std::string_view text) const {
  if (text == commit) return Committed{};
  const auto reason = text.starts_with(cancel) ? text.substr(cancel.size()) : text;
  return Failed{make_error(Errc::aborted, "generation {} was not formed, and the group before it stands: {}",
                           generation_, reason)};
}

Agreement::Request Agreement::given_up() const {
  return cancelled(who() + " was told to give up");
}

Agreement::Request Agreement::deadline_passed(const std::vector<std::string>& missing, double seconds) const {
  if (missing.empty()) return cancelled(fmt::format("{} waited {:.1f} s for the decision", who(), seconds));
  return cancelled(fmt::format("{} waited {:.1f} s for member{} {}", who(), seconds, missing.size() == 1 ? "" : "s",
                               joined(missing)));
}

}  // namespace ddprun::comm
