#include "worker/checkpoint/search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "common/error.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/names.h"
#include "worker/digest/sha256.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> whole_names{model_file, optimizer_file, state_file};
constexpr std::array<const char*, 2> names_beside_parts{placements_file, state_file};

std::span<const char* const> needed_names(const Manifest& manifest) {
  if (manifest.has_parts) return names_beside_parts;
  return whole_names;
}

// An answer to the peers: its first character says what it is.
enum class Answer : char { nothing = '-', text = '=', damaged = '?', inaccessible = '!' };

std::string answer(Answer what, const std::string& text = {}) {
  return static_cast<char>(what) + text;
}

// Returns what the act answers, or the error that it throws.
std::string answer_of(const std::function<std::string()>& act) {
  try {
    return act();
  } catch (const InaccessibleFile& e) {
    return answer(Answer::inaccessible, e.what());
  } catch (const Error& e) {
    return answer(Answer::damaged, e.what());
  }
}

bool is(const std::string& answer, Answer what) {
  return answer.front() == static_cast<char>(what);
}

// Throws the first error among the answers of all processes.
void throw_first_error(const std::vector<std::string>& answers) {
  for (const auto& each : answers) {
    if (is(each, Answer::inaccessible)) throw InaccessibleFile(each.substr(1));
    if (is(each, Answer::damaged)) throw Error(Errc::io, each.substr(1));
  }
}

void check_digest(const fs::path& file, const FileDigest& expected) {
  const auto found = digest_of_file(file);
  if (found.bytes != expected.bytes)
    throw make_error(Errc::io, "{} has {} bytes, {} according to its manifest", file.string(), found.bytes,
                     expected.bytes);
  if (found.sha256 != expected.sha256)
    throw make_error(Errc::io, "{} has changed: its SHA-256 differs from the one in the manifest", file.string());
}

void check_step(std::int64_t step, const fs::path& state_path, std::int64_t expected, std::string_view which) {
  if (step != expected)
    throw make_error(Errc::io, "{}: member step is {}, expected {}, {}", state_path.string(), step, expected, which);
}

std::string digest_of(const std::string& text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

// A manifest that some processes have: hosts may have different checkpoints of one name, such as one of an earlier run.
struct Candidate {
  std::string manifest;      // its text
  std::vector<bool> has_it;  // by process
};

// Returns the different manifests, in the order of the first process that has each.
std::vector<Candidate> candidates_in(const fs::path& folder, const Peers& peers) {
  const auto path = folder / manifest_name;
  std::string own;
  const auto digests = peers.all_gather(answer_of([&] {
    if (!fs::exists(folder)) return answer(Answer::nothing);
    own = read_file(path);
    return answer(Answer::text, digest_of(own));
  }));
  const auto is_first = [&](std::size_t rank) {
    return std::find(digests.begin(), digests.end(), digests[rank]) - digests.begin() == std::ptrdiff_t(rank);
  };
  const auto texts = peers.all_gather(is_first(static_cast<std::size_t>(peers.rank)) ? own : "");
  std::vector<Candidate> all;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (!is(digests[rank], Answer::text) || !is_first(rank)) continue;
    auto& candidate = all.emplace_back(Candidate{.manifest = texts[rank], .has_it = {}});
    for (const auto& digest : digests) candidate.has_it.push_back(digest == digests[rank]);
  }
  if (all.empty()) throw_first_error(digests);
  if (all.empty()) throw make_error(Errc::io, "there is no {}", path.string());
  return all;
}

// Which process sees which of the files that a manifest lists.
class Sight {
 public:
  Sight(const fs::path& folder, const FileDigests& files, const Candidate& candidate, const Peers& peers) {
    std::string own;  // a character for each file; one if all are alike
    if (candidate.has_it[static_cast<std::size_t>(peers.rank)])
      for (const auto& [name, digest] : files) own += fs::exists(fs::symlink_status(folder / name)) ? '1' : '0';
    seen_ = peers.all_gather(own.find('0') == std::string::npos && !own.empty() ? "1" : own);
  }

  std::vector<int> processes() const {
    std::vector<int> all(seen_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  bool sees_all(int process) const { return seen_[static_cast<std::size_t>(process)] == "1"; }
  bool sees(int process, std::size_t file) const {
    const auto& seen = seen_[static_cast<std::size_t>(process)];
    return sees_all(process) || (file < seen.size() && seen[file] == '1');
  }

 private:
  std::vector<std::string> seen_;  // by process
};

// Returns for each file a process that sees it. Of a checkpoint of parts these are spread over those that do; of
// another one process reads all.
std::map<std::string, int> readers_of(const fs::path& folder, const Manifest& manifest, const Sight& sight) {
  std::map<std::string, int> readers;
  std::size_t index = 0, part = 0;
  const auto processes = sight.processes();
  for (const auto& [name, digest] : manifest.files) {
    std::vector<int> seeing;
    std::ranges::copy_if(processes, std::back_inserter(seeing), [&](int each) { return sight.sees(each, index); });
    // Alone, the process finds out what is wrong with the file.
    if (seeing.empty() && processes.size() == 1) seeing.push_back(0);
    if (seeing.empty()) throw make_error(Errc::io, "no rank sees the file {}", (folder / name).string());
    readers[name] = seeing[is_part_file(name) ? part++ % seeing.size() : 0];
    ++index;
  }
  if (manifest.has_parts || processes.size() == 1) return readers;
  const auto reader = std::ranges::find_if(processes, [&](int each) { return sight.sees_all(each); });
  if (reader == processes.end()) throw make_error(Errc::io, "no rank sees all files of {}", folder.string());
  for (auto& [name, process] : readers) process = *reader;
  return readers;
}

// Examines the checkpoint that one of the manifests describes.
Found examine(const fs::path& folder, const Candidate& candidate, const Peers& peers, const ContentCheck& check) {
  const auto manifest = manifest_from_json(candidate.manifest, (folder / manifest_name).string());
  for (const auto* name : needed_names(manifest)) {
    if (!manifest.files.contains(name))
      throw make_error(Errc::io, "{} does not list {}", (folder / manifest_name).string(), name);
  }
  Found found{.folder = folder, .state = {}, .has_parts = manifest.has_parts, .files = manifest.files};
  found.readers = readers_of(folder, manifest, Sight(folder, manifest.files, candidate, peers));
  const auto state_path = folder / state_file;
  const auto states = all_do(peers, [&] {
    for (const auto& [name, expected] : manifest.files)
      if (found.readers.at(name) == peers.rank) check_digest(folder / name, expected);
    return found.readers.at(state_file) == peers.rank ? read_file(state_path) : std::string();
  });
  found.state =
      run_state_from_json(states[static_cast<std::size_t>(found.readers.at(state_file))], state_path.string());
  check_step(found.state.step, state_path, manifest.step, "that of manifest.json");
  if (const auto step = step_of(folder)) check_step(found.state.step, state_path, *step, "that of the folder's name");
  if (check) check(found, peers);
  return found;
}

}  // namespace

int Found::reader_of(const std::string& file) const {
  const auto reader = readers.find(file);
  if (reader == readers.end())
    throw make_error(Errc::io, "{} does not list {}", (folder / manifest_name).string(), file);
  return reader->second;
}

StepFolders step_folders(const fs::path& folder) {
  StepFolders all;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(folder, status)) {
    if (const auto step = step_of(entry.path())) all.emplace_back(*step, entry.path());
  }
  if (status && status != std::errc::no_such_file_or_directory)
    throw InaccessibleFile(fmt::format("cannot list {}: {}", folder.string(), status.message()));
  std::sort(all.rbegin(), all.rend());
  return all;
}

std::vector<std::string> all_do(const Peers& peers, const std::function<std::string()>& act) {
  auto answers = peers.all_gather(answer_of([&] { return answer(Answer::text, act()); }));
  throw_first_error(answers);
  for (auto& each : answers) each.erase(0, 1);
  return answers;
}

// All processes come to the same errors, and so try the same manifests.
Found examine_checkpoint(const fs::path& folder, const Peers& peers, const ContentCheck& check) {
  std::optional<InaccessibleFile> inaccessible;
  std::optional<Error> damage;
  for (const auto& candidate : candidates_in(folder, peers)) {
    try {
      return examine(folder, candidate, peers, check);
    } catch (const InaccessibleFile& e) {
      if (!inaccessible) inaccessible = e;
    } catch (const Error& e) {
      if (e.code() != Errc::io) throw;
      if (!damage) damage = e;
    }
  }
  if (inaccessible) throw InaccessibleFile(*inaccessible);
  throw Error(*damage);
}

Found verify_checkpoint(const fs::path& folder, const ContentCheck& check) {
  return examine_checkpoint(folder, {}, check);
}

}  // namespace ddprun::checkpoint
