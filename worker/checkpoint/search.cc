#include "worker/checkpoint/search.h"

#include <algorithm>
#include <array>
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

// The manifest of the first process that has one, and which processes have the same: hosts may have another checkpoint
// of that name, of an earlier run.
class ManifestChoice {
 public:
  ManifestChoice(const fs::path& folder, const Peers& peers) {
    const auto path = folder / manifest_name;
    std::string own;
    const auto digests = peers.all_gather(answer_of([&] {
      if (!fs::exists(folder)) return answer(Answer::nothing);
      own = read_file(path);
      return answer(Answer::text, digest_of(own));
    }));
    const auto first = std::ranges::find_if(digests, [](const auto& each) { return is(each, Answer::text); });
    if (first == digests.end()) throw_first_error(digests);
    if (first == digests.end()) throw make_error(Errc::io, "there is no {}", path.string());
    for (const auto& digest : digests) has_it_.push_back(digest == *first);
    const auto sender = static_cast<std::size_t>(first - digests.begin());
    const auto texts = peers.all_gather(static_cast<int>(sender) == peers.rank ? own : "");
    manifest_ = manifest_from_json(texts[sender], path.string());
  }

  const Manifest& manifest() const { return manifest_; }
  bool has_it(std::size_t rank) const { return has_it_[rank]; }

 private:
  Manifest manifest_;
  std::vector<bool> has_it_;  // by process
};

// Returns for each file a process that sees it, spread over those that do.
std::map<std::string, int> readers_of(const fs::path& folder, const ManifestChoice& choice, const Peers& peers) {
  const auto& files = choice.manifest().files;
  std::string own;  // a character for each file
  if (choice.has_it(static_cast<std::size_t>(peers.rank)))
    for (const auto& [name, digest] : files) own += fs::exists(fs::symlink_status(folder / name)) ? '1' : '0';
  const auto seen = peers.all_gather(own.find('0') == std::string::npos && !own.empty() ? "1" : own);
  std::map<std::string, int> readers;
  std::size_t index = 0, part = 0;
  for (const auto& [name, digest] : files) {
    std::vector<int> seeing;
    for (std::size_t rank = 0; rank < seen.size(); ++rank)
      if (seen[rank] == "1" || (index < seen[rank].size() && seen[rank][index] == '1'))
        seeing.push_back(static_cast<int>(rank));
    if (seeing.empty() && seen.size() > 1)
      throw make_error(Errc::io, "no rank sees the file {}", (folder / name).string());
    // Alone, the process finds out what is wrong with the file.
    if (seeing.empty()) seeing.push_back(0);
    readers[name] = seeing[is_part_file(name) ? part++ % seeing.size() : 0];
    ++index;
  }
  return readers;
}

}  // namespace

Found examine_checkpoint(const fs::path& folder, const Peers& peers) {
  const ManifestChoice choice(folder, peers);
  const Manifest& manifest = choice.manifest();
  for (const auto* name : needed_names(manifest)) {
    if (!manifest.files.contains(name))
      throw make_error(Errc::io, "{} does not list {}", (folder / manifest_name).string(), name);
  }
  Found found{.folder = folder, .state = {}, .has_parts = manifest.has_parts};
  found.readers = readers_of(folder, choice, peers);
  const auto state_path = folder / state_file;
  const auto answers = peers.all_gather(answer_of([&] {
    for (const auto& [name, expected] : manifest.files)
      if (found.readers.at(name) == peers.rank) check_digest(folder / name, expected);
    return found.readers.at(state_file) == peers.rank ? answer(Answer::text, read_file(state_path))
                                                      : answer(Answer::nothing);
  }));
  throw_first_error(answers);
  const auto& text = answers[static_cast<std::size_t>(found.readers.at(state_file))];
  found.state = run_state_from_json(text.substr(1), state_path.string());
  check_step(found.state.step, state_path, manifest.step, "that of manifest.json");
  if (const auto step = step_of(folder)) check_step(found.state.step, state_path, *step, "that of the folder's name");
  return found;
}

Found verify_checkpoint(const fs::path& folder) {
  return examine_checkpoint(folder, {});
}

}  // namespace ddprun::checkpoint
