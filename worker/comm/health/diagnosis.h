#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/progress/rank_record.h"

// How a failure is explained from what ranks publish of themselves, and the verdict that they settle on. Values and
// pure functions; peer_monitor.h moves them.
namespace ddprun::comm {

// Why a group ended: the same at every rank, since only the first one that is set in the store counts.
struct Verdict {
  Errc code = Errc::peer_lost;
  std::string message;
  std::vector<int> lost{};  // the ranks that died, or are taken for frozen or cut off
  friend bool operator==(const Verdict&, const Verdict&) = default;
};
std::string encode(const Verdict& verdict);
Verdict decode_verdict(std::string_view text);

// An operation that did not end as it should, as the rank that noticed saw it.
struct Stall {
  static constexpr int anybody = -2;
  int rank = 0;                // who noticed
  std::uint64_t sequence = 0;  // of a collective, or of a send or recv as RankOperation has it
  std::uint16_t signature = 0;
  int partner = -1;         // of a send or recv; anybody for a recv from any source; otherwise -1
  std::string operation;    // "allreduce(sum) of 100 float32"
  std::string counterpart;  // of a send or recv: what its partner is to call
  double seconds = 0;       // how long it has taken
  std::string transport;    // the transport's own message; empty: it only took too long
};

// A rank's record at two moments some heartbeats apart; none: it had not published, or could not be read.
struct Observation {
  std::optional<RankRecord> before;
  std::optional<RankRecord> now;
};

// Who is to blame, in this order: ranks that left, ranks without a sign of life between the two observations
// (peer_lost), ranks that call something else (mismatch), ranks that have not come (timeout); else nobody: the network
// itself. observations[r] is rank r's; seconds_between: of the two moments.
Verdict diagnose(const Stall& stall, const std::vector<Observation>& observations, double seconds_between);

// The ranks other than rank whose heartbeats have stood still for some seconds, with what describe says of each and
// where it was; none of those that left. Nothing to observe of a rank is no evidence.
Verdict blame_silent(int rank, const std::vector<Observation>& observations, double seconds,
                     const std::function<std::string(int rank)>& describe);

// What is said of a rank whose process is gone, whoever notices: its store, its host, or a watcher.
Verdict loss_of(int rank, const std::string& identity);

// The ranks that called another collective in the place of this one, if any: certain at any time.
std::optional<Verdict> blame_disagreeing(const Stall& stall, const std::vector<std::optional<RankRecord>>& records);

// The partner of a send or recv, where it is in another one in the place of its counterpart: certain at any time.
std::optional<Verdict> blame_partner(const Stall& stall, const RankRecord& partner);

// The ranks that left and are missed, if any: known without a second observation. Of a recv from any source, none is
// missed while another one is here.
std::optional<Verdict> blame_leavers(const Stall& stall, const std::vector<std::optional<RankRecord>>& records);

}  // namespace ddprun::comm
