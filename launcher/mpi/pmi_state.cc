#include "launcher/mpi/pmi_state.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>

namespace ddprun {

// A line such as "cmd=put kvsname=job key=a value=b": words that a space ends, each a key and a value. A backslash
// before a space makes it part of the value, which its readers get with the backslash, as they expect it.
class PmiState::Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }

  // The value of a key; empty if there is none.
  std::string_view value(std::string_view key) const {
    for (auto rest = text_; !rest.empty();) {
      const auto end = end_of_word(rest);
      const auto word = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=')
        return word.substr(key.size() + 1);
    }
    return {};
  }
  int number(std::string_view key) const {
    int number = 0;
    const auto text = value(key);
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }

 private:
  static std::size_t end_of_word(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size() && text[at] != ' ') at += text[at] == '\\' ? 2 : 1;
    return std::min(at, text.size());
  }

  std::string_view text_;
};

namespace {

// The number of bytes of a line that a violation quotes.
constexpr std::size_t longest_quote = 80;

std::string refusal(std::string_view answer, std::string_view why) {
  return fmt::format("cmd={} rc=-1 msg={}\n", answer, why);
}

}  // namespace

PmiState::PmiState(PmiJob job) : job_(std::move(job)), ranks_(static_cast<std::size_t>(job_.local_size)) {
  pairs_["PMI_process_mapping"] = job_.process_mapping;
}

PmiActions PmiState::received(int local_rank, std::string_view bytes) {
  PmiActions actions;
  auto& sender = rank(local_rank);
  while (!bytes.empty() && !sender.broken) {
    const auto end = bytes.find('\n');
    sender.partial += bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (sender.partial.size() > longest_line) {
      sender.broken = true;
      actions.violations.push_back({local_rank, fmt::format("a line of more than {} bytes", longest_line)});
    } else if (end != std::string_view::npos) {
      take(local_rank, std::exchange(sender.partial, {}), actions);
    }
  }
  return actions;
}

void PmiState::take(int local_rank, std::string_view text, PmiActions& actions) {
  auto& sender = rank(local_rank);
  if (sender.spawning) {
    take_of_spawn(local_rank, text, actions);
  } else if (text.starts_with("mcmd=spawn")) {
    sender.spawning = true;
  } else {
    answer(local_rank, Line(text), actions);
  }
}

// MPI_Comm_spawn_multiple is one request for each program, "spawnssofar" of "totspawns", and gets one reply.
void PmiState::take_of_spawn(int local_rank, std::string_view text, PmiActions& actions) {
  auto& sender = rank(local_rank);
  if (text.starts_with("totspawns=")) sender.spawns_left = Line(text).number("totspawns");
  if (text.starts_with("spawnssofar=")) sender.spawns_left -= Line(text).number("spawnssofar");
  if (text != "endcmd") return;
  sender.spawning = false;
  if (sender.spawns_left <= 0)
    actions.replies.push_back({local_rank, refusal("spawn_result", "ddprun_starts_no_further_processes")});
}

void PmiState::answer(int local_rank, const Line& line, PmiActions& actions) {
  const auto command = line.value("cmd");
  const auto reply = [&](std::string text) { actions.replies.push_back({local_rank, std::move(text)}); };
  auto& sender = rank(local_rank);
  const auto violate = [&](const char* where) {
    sender.broken = true;
    actions.violations.push_back({local_rank, fmt::format("'{}'{}", line.text().substr(0, longest_quote), where)});
  };
  if (sender.in_barrier) {
    violate(" inside of a barrier");
  } else if (command == "init") {
    const bool known = line.number("pmi_version") == 1;
    sender.active = sender.begun = known;
    reply(fmt::format("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={}\n", known ? 0 : -1));
  } else if (command == "get_maxes") {
    reply(fmt::format("cmd=maxes kvsname_max={} keylen_max={} vallen_max={} rc=0\n", longest_name, longest_key,
                      longest_value));
  } else if (command == "get_appnum") {
    reply("cmd=appnum appnum=0 rc=0\n");
  } else if (command == "get_universe_size") {
    reply(fmt::format("cmd=universe_size size={} rc=0\n", job_.size));
  } else if (command == "get_my_kvsname") {
    reply(fmt::format("cmd=my_kvsname kvsname={} rc=0\n", job_.name));
  } else if (command == "put") {
    reply(put(line));
  } else if (command == "get") {
    reply(get(line));
  } else if (command == "barrier_in") {
    enter_barrier(local_rank, actions);
  } else if (command == "finalize") {
    sender.active = false;
    reply("cmd=finalize_ack rc=0\n");
  } else if (command == "abort") {
    actions.aborts.push_back({local_rank, line.number("exitcode")});
  } else if (command == "publish_name" || command == "unpublish_name" || command == "lookup_name") {
    reply(refusal(command == "publish_name"     ? "publish_result"
                  : command == "unpublish_name" ? "unpublish_result"
                                                : "lookup_result",
                  "ddprun_publishes_no_names"));
  } else {
    violate("");
  }
}

bool PmiState::names_own_space(const Line& line) const {
  const auto name = line.value("kvsname");
  return name.empty() || name == job_.name;
}

std::string PmiState::put(const Line& line) {
  const auto key = line.value("key"), value = line.value("value");
  if (!names_own_space(line)) return refusal("put_result", "unknown_kvsname");
  if (key.empty() || key.size() > longest_key) return refusal("put_result", "invalid_key");
  if (value.size() > longest_value) return refusal("put_result", "value_too_long");
  pairs_[std::string(key)] = value;
  fresh_.emplace_back(key, value);
  return "cmd=put_result rc=0 msg=success\n";
}

std::string PmiState::get(const Line& line) const {
  const auto pair = pairs_.find(line.value("key"));
  if (!names_own_space(line) || pair == pairs_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  return fmt::format("cmd=get_result rc=0 msg=success value={}\n", pair->second);
}

void PmiState::enter_barrier(int local_rank, PmiActions& actions) {
  rank(local_rank).in_barrier = true;
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.in_barrier; }))
    actions.fence = PmiFence{std::exchange(fresh_, {})};
}

PmiActions PmiState::fence_done(const PmiPairs& pairs) {
  for (const auto& [key, value] : pairs) pairs_[key] = value;
  PmiActions actions;
  for (int local_rank = 0; local_rank < job_.local_size; ++local_rank)
    if (std::exchange(rank(local_rank).in_barrier, false))
      actions.replies.push_back({local_rank, "cmd=barrier_out rc=0\n"});
  return actions;
}

std::string PmiState::complaint(int local_rank) const {
  const auto& ended = rank(local_rank);
  if (ended.active) return "it exited without MPI_Finalize";
  // MPI_Init waits for all ranks, in a barrier here or over shared memory.
  const bool awaited = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.begun; });
  return !ended.begun && awaited ? "it exited without MPI_Init, in which other ranks wait for it" : "";
}

std::string pmi_process_mapping(const std::vector<int>& nprocs) {
  std::string text = "(vector";
  for (std::size_t first = 0; first < nprocs.size();) {
    auto end = first;
    while (end < nprocs.size() && nprocs[end] == nprocs[first]) ++end;
    text += fmt::format(",({},{},{})", first, end - first, nprocs[first]);
    first = end;
  }
  return text + ")";
}

std::string pmi_job_name(std::string_view first_node_id, std::int64_t generation) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : first_node_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return fmt::format("ddprun_{:016x}_{}", hash, generation);
}

std::string encode_pmi_pairs(const PmiPairs& pairs) {
  std::string text = "+";
  for (const auto& [key, value] : pairs) text += key + '\n' + value + '\n';
  return text;
}

std::optional<PmiPairs> decode_pmi_pairs(std::string_view text) {
  if (!text.starts_with('+')) return std::nullopt;
  text.remove_prefix(1);
  std::vector<std::string> words;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  if (!text.empty() || words.size() % 2 != 0) return std::nullopt;
  PmiPairs pairs;
  for (std::size_t i = 0; i < words.size(); i += 2) pairs.emplace_back(std::move(words[i]), std::move(words[i + 1]));
  return pairs;
}

}  // namespace ddprun
