#include "worker/trainer/ledger/ledger_history.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "worker/digest/sha256.h"

namespace ddprun::trainer {
namespace {

bool same_samples(const LedgerStep& a, const LedgerStep& b) {
  return a.epoch == b.epoch && a.first == b.first && a.samples == b.samples && a.ends_epoch == b.ends_epoch;
}

std::string range_text(std::int64_t first, std::int64_t end, std::int64_t epoch) {
  return fmt::format("samples {} to {} of epoch {}", first, end - 1, epoch);
}

// Goes through the steps in order, and finds samples that they do not train, or train twice.
class Coverage {
 public:
  explicit Coverage(LedgerVerdict& verdict) : verdict_(verdict) {}

  void add(const LedgerStep& step, const LedgerSession& session) {
    if (step.step != verdict_.steps + 1) problem("steps {} to {} are missing", verdict_.steps + 1, step.step - 1);
    // A resumed run leaves out the end of an epoch that does not divide among as many ranks as it has.
    if (step.epoch == epoch_ + 1) end_epoch(session);
    if (step.epoch != epoch_) {
      problem("step {} is of epoch {}, where epoch {} goes on", step.step, step.epoch, epoch_);
      epoch_ = step.epoch;
      position_ = step.first;
    }
    check_range(step, session.epoch_samples);
    position_ = step.first + step.samples;
    largest_step_ = std::max(largest_step_, step.samples);
    verdict_.steps = step.step;
    verdict_.samples += step.samples;
    if (step.ends_epoch) end_epoch(session);
  }

 private:
  void check_range(const LedgerStep& step, std::int64_t epoch_samples) {
    const auto end = step.first + step.samples;
    if (step.first > position_)
      problem("{} are not trained before step {}", range_text(position_, step.first, epoch_), step.step);
    if (step.first < position_)
      problem("step {} trains {} again", step.step, range_text(step.first, std::min(position_, end), epoch_));
    if (end > epoch_samples)
      problem("step {} trains {}, and the epoch has {}", step.step, range_text(step.first, end, epoch_), epoch_samples);
  }

  // Fewer samples than a step has, or than there are ranks, may be left out.
  void end_epoch(const LedgerSession& session) {
    const auto left = std::max<std::int64_t>(session.epoch_samples - position_, 0);
    if (left >= std::max<std::int64_t>(largest_step_, session.ranks))
      problem("{} are not trained", range_text(position_, session.epoch_samples, epoch_));
    verdict_.left_out += left;
    ++verdict_.epochs;
    ++epoch_;
    position_ = 0;
  }
  template <class... Values>
  void problem(fmt::format_string<Values...> text, Values&&... values) {
    verdict_.problems.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  LedgerVerdict& verdict_;
  std::int64_t epoch_ = 1;
  std::int64_t position_ = 0;
  std::int64_t largest_step_ = 0;
};

}  // namespace

void LedgerHistory::add_file(std::string_view file, std::string_view text) {
  std::string last;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    if (const auto line = parse_ledger_line(text.substr(0, end))) {
      std::visit([&](const auto& each) { add(file, each); }, *line);
      if (const auto* session = std::get_if<LedgerSession>(&*line)) last = session->id;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!last.empty()) ends_.push_back(last);
}

void LedgerHistory::add(std::string_view file, const LedgerSession& session) {
  const auto [found, is_new] = sessions_.emplace(session.id, SessionRecord{session, {}});
  if (!is_new && found->second.begin != session)
    contradictions_.push_back(fmt::format("{}: session {} begins otherwise than in another file", file, session.id));
}

void LedgerHistory::add(std::string_view file, const LedgerStep& step) {
  const auto found = sessions_.find(step.session);
  if (found == sessions_.end()) {
    contradictions_.push_back(
        fmt::format("{}: step {} is of session {}, which has not begun", file, step.step, step.session));
    return;
  }
  const auto [other, is_new] = found->second.steps.emplace(step.step, step);
  if (!is_new && other->second != step)
    contradictions_.push_back(
        fmt::format("{}: step {} of session {} has other samples than in another line", file, step.step, step.session));
}

// Returns the sessions from the first one on.
std::vector<const LedgerHistory::SessionRecord*> LedgerHistory::lineage(const std::string& last) const {
  std::vector<const SessionRecord*> all;
  std::set<std::string> seen;
  for (auto at = sessions_.find(last); at != sessions_.end() && seen.insert(at->first).second;
       at = sessions_.find(at->second.begin.parent))
    all.push_back(&at->second);
  std::ranges::reverse(all);
  return all;
}

// A host that has left has the ledger only up to then: its last session is an ancestor of the others'.
std::string LedgerHistory::last_session(std::vector<std::string>& problems) const {
  std::string last;
  std::size_t length = 0;
  for (const auto& each : ends_) {
    const auto sessions = lineage(each).size();
    if (sessions > length) {
      last = each;
      length = sessions;
    }
  }
  const auto all = lineage(last);
  for (const auto& each : ends_)
    if (std::ranges::none_of(all, [&](const auto* session) { return session->begin.id == each; }))
      problems.push_back(
          fmt::format("the files end in sessions {} and {}, of which neither goes on from the other", last, each));
  return last;
}

// Returns the steps that led to the last session's weights. A session repeats the events after the step from which it
// goes on, so it may have that step, too.
LedgerHistory::Committed LedgerHistory::committed(const std::vector<const SessionRecord*>& lineage,
                                                  std::vector<std::string>& problems) {
  Committed all;
  for (const auto* session : lineage) {
    all.erase(all.upper_bound(session->begin.after), all.end());
    for (const auto& [number, step] : session->steps) {
      const auto [found, is_new] = all.emplace(number, CommittedStep{step, &session->begin});
      if (!is_new && !same_samples(found->second.step, step))
        problems.push_back(fmt::format("step {} of session {} has other samples than in session {}", number,
                                       step.session, found->second.step.session));
    }
  }
  return all;
}

// Counts the steps of all sessions, abandoned ones too.
std::int64_t LedgerHistory::steps_made() const {
  std::int64_t made = 0;
  for (const auto& [id, session] : sessions_)
    made += std::ranges::count_if(session.steps, [&](const auto& each) { return each.first > session.begin.after; });
  return made;
}

LedgerVerdict LedgerHistory::verify() const {
  LedgerVerdict verdict;
  verdict.problems = contradictions_;
  verdict.session = last_session(verdict.problems);
  const auto sessions = lineage(verdict.session);
  if (sessions.empty()) {
    verdict.problems.emplace_back("there is no session");
    return verdict;
  }
  const auto& root = sessions.front()->begin;
  if (!root.parent.empty())
    verdict.problems.push_back(
        fmt::format("session {} goes on from session {}, which is in no file", root.id, root.parent));
  verdict.sessions = static_cast<int>(sessions.size());
  const auto steps = committed(sessions, verdict.problems);
  verdict.abandoned = std::max<std::int64_t>(steps_made() - std::ssize(steps), 0);
  Coverage coverage(verdict);
  Sha256 hash;
  hash.update(fmt::format("seed {}\n", root.seed));
  for (const auto& [number, each] : steps) {
    coverage.add(each.step, *each.session);
    hash.update(fmt::format("{} {} {} {}\n", number, each.step.epoch, each.step.first, each.step.samples));
  }
  if (verdict.problems.empty()) verdict.hash = hash.hex();
  return verdict;
}

}  // namespace ddprun::trainer
