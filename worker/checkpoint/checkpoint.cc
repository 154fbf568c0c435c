#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <stdio.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/log.h"
#include "worker/checkpoint/manifest.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step_";
constexpr std::string_view aside_prefix = ".writing-";  // not yet, or no longer, a checkpoint
constexpr const char* best_name = "best";
constexpr std::array<const char*, 3> content_names{"model.safetensors", "optimizer.safetensors", "state.json"};

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:06}", step_prefix, step);
}

std::optional<std::int64_t> step_of(const fs::path& folder) {
  const auto name = folder.filename().string();
  if (!name.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto* begin = name.data() + step_prefix.size();
  const auto* end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(begin, end, step);
  if (status != std::errc{} || stop != end || step < 0) return std::nullopt;
  return step;
}

// Returns the folders of checkpoints, newest first.
std::vector<std::pair<std::int64_t, fs::path>> step_folders(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> all;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(folder, status)) {
    if (const auto step = step_of(entry.path())) all.emplace_back(*step, entry.path());
  }
  if (status) throw make_error(Errc::io, "cannot list {}: {}", folder.string(), status.message());
  std::sort(all.rbegin(), all.rend());
  return all;
}

void make_folder(const fs::path& folder) {
  std::error_code status;
  fs::create_directories(folder, status);
  if (status) throw make_error(Errc::io, "cannot create folder {}: {}", folder.string(), status.message());
}

void remove_or_warn(const fs::path& folder) {
  std::error_code status;
  fs::remove_all(folder, status);
  if (status) log::warn("cannot remove {}: {}", folder.string(), status.message());
}

// Returns false if one of the files exists and cannot be opened.
bool is_accessible(const fs::path& checkpoint) {
  const auto opens = [&](std::string_view name) {
    try {
      open_file(checkpoint / name);
    } catch (const InaccessibleFile&) {
      return false;
    } catch (const Error&) {
      // a missing file: the checkpoint is torn
    }
    return true;
  };
  return opens(manifest_name) && std::all_of(content_names.begin(), content_names.end(), opens);
}

// Removes a folder; it is renamed first, so that a half removed folder never looks like a checkpoint.
void retire(const fs::path& folder) {
  const auto aside = folder.parent_path() / (std::string(aside_prefix) + folder.filename().string() + "-old");
  if (::rename(folder.c_str(), aside.c_str()) != 0)
    log::warn("cannot rename {}: {}", folder.string(), errno_text(errno));
  else
    remove_or_warn(aside);
}

// Gives each folder the other's name at once. Returns false if the file system cannot do that.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

template <class Write>
FileDigest write_file(const fs::path& path, Write&& write) {
  FileWriter out(path);
  write(out);
  return out.finish();
}

void check_step(std::int64_t step, const fs::path& state_path, std::int64_t expected, std::string_view which) {
  if (step != expected)
    throw make_error(Errc::io, "{}: member step is {}, expected {}, {}", state_path.string(), step, expected, which);
}

}  // namespace

Found verify_checkpoint(const fs::path& folder) {
  const auto manifest_path = folder / manifest_name;
  const auto manifest = manifest_from_json(read_file(manifest_path), manifest_path.string());
  for (const auto* name : content_names) {
    if (!manifest.files.contains(name)) throw make_error(Errc::io, "{} does not list {}", manifest_path.string(), name);
  }
  for (const auto& [name, expected] : manifest.files) {
    const auto found = digest_of_file(folder / name);
    if (found.bytes != expected.bytes)
      throw make_error(Errc::io, "{} has {} bytes, {} according to its manifest", (folder / name).string(), found.bytes,
                       expected.bytes);
    if (found.sha256 != expected.sha256)
      throw make_error(Errc::io, "{} has changed: its SHA-256 differs from the one in the manifest",
                       (folder / name).string());
  }
  const auto state_path = folder / "state.json";
  auto state = run_state_from_json(read_file(state_path), state_path.string());
  check_step(state.step, state_path, manifest.step, "that of manifest.json");
  if (const auto step = step_of(folder)) check_step(state.step, state_path, *step, "that of the folder's name");
  return {.folder = folder,
          .state = std::move(state),
          .has_hook = manifest.files.contains("hook.safetensors"),
          .has_ema = manifest.files.contains("ema.safetensors")};
}

Checkpoints::Checkpoints(CheckpointOptions options) : options_(std::move(options)) {
  if (options_.keep < 1) throw make_error(Errc::internal, "checkpoints: keep is {}", options_.keep);
  make_folder(options_.folder);
}

std::optional<Found> Checkpoints::newest() {
  const auto folders = step_folders(options_.folder);
  std::string reason;  // why the newest one cannot be used
  const auto skip = [&](const fs::path& folder, const char* how, const Error& error) {
    log::warn("checkpoint {} {}: {}", folder.string(), how, error.what());
    if (reason.empty()) reason = error.what();
  };
  for (const auto& [step, folder] : folders) {
    try {
      return verify_checkpoint(folder);
    } catch (const InaccessibleFile& e) {
      inaccessible_.insert(folder);
      skip(folder, "cannot be read; it is skipped and left as it is", e);
    } catch (const Error& e) {
      skip(folder, "is damaged and skipped", e);
    }
  }
  if (folders.empty()) return std::nullopt;
  throw make_error(Errc::io,
                   "no checkpoint in {} can be used ({} found); the newest one: {}. To start from step 0 nevertheless, "
                   "set another checkpoint.dir, or checkpoint.resume = never, which replaces damaged checkpoints",
                   options_.folder.string(), folders.size(), reason);
}

bool Checkpoints::any() const {
  return !step_folders(options_.folder).empty();
}

void Checkpoints::save(const Content& content) {
  save_as(folder_name(content.state.step), content);
  prune(content.state.step);
}

void Checkpoints::save_best(const Content& content) {
  save_as(best_name, content);
}

std::optional<Found> Checkpoints::best() {
  const auto folder = options_.folder / best_name;
  if (!fs::exists(folder)) return std::nullopt;
  return verify_checkpoint(folder);
}

void Checkpoints::save_as(const std::string& name, const Content& content) const {
  make_folder(options_.folder);
  remove_leftovers();
  const auto target = options_.folder / name;
  check_replaceable(target);
  try {
    publish(write_aside(name, content), target);
  } catch (...) {
    remove_leftovers();
    throw;
  }
}

void Checkpoints::check_replaceable(const fs::path& target) const {
  if (!fs::exists(target)) return;
  try {
    verify_checkpoint(target);
  } catch (const InaccessibleFile& e) {
    throw make_error(Errc::io, "cannot save {}: a checkpoint of that name exists and cannot be read ({}); move it away",
                     target.string(), e.what());
  } catch (const Error&) {
    // damaged: it may be replaced
  }
}

fs::path Checkpoints::write_aside(const std::string& name, const Content& content) const {
  auto aside = options_.folder / (std::string(aside_prefix) + name);
  options_.before("create the folder");
  make_folder(aside);
  Manifest manifest{.step = content.state.step};
  const auto add = [&](const std::string& file, const auto& write) {
    options_.before("write " + file);
    manifest.files[file] = write_file(aside / file, write);
  };
  add("model.safetensors", [&](FileWriter& out) { write_safetensors(out, content.model, {{"format", "pt"}}); });
  add("optimizer.safetensors", [&](FileWriter& out) { write_safetensors(out, content.optimizer); });
  if (!content.hook.empty()) add("hook.safetensors", [&](FileWriter& out) { write_safetensors(out, content.hook); });
  if (!content.ema.empty())
    add("ema.safetensors", [&](FileWriter& out) { write_safetensors(out, content.ema, {{"format", "pt"}}); });
  add("state.json", [&](FileWriter& out) { out.write(to_json(content.state)); });
  options_.before("write the manifest");
  write_file(aside / manifest_name, [&](FileWriter& out) { out.write(to_json(manifest)); });
  options_.before("flush the folder");
  sync_folder(aside);
  return aside;
}

void Checkpoints::publish(const fs::path& aside, const fs::path& target) const {
  options_.before("publish");
  // A folder of that name exists if it is the best one so far, and if it was skipped as damaged, or ignored, and the
  // run has reached its step again.
  if (fs::exists(target) && exchange(aside, target)) {
    options_.before("flush the rename");
    sync_folder(options_.folder);
    remove_or_warn(aside);
    return;
  }
  if (fs::exists(target)) retire(target);
  if (::rename(aside.c_str(), target.c_str()) != 0)
    throw make_error(Errc::io, "cannot rename {} to {}: {}", aside.string(), target.string(), errno_text(errno));
  options_.before("flush the rename");
  sync_folder(options_.folder);
}

void Checkpoints::remove_leftovers() const {
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(options_.folder, status)) {
    if (entry.path().filename().string().starts_with(aside_prefix)) remove_or_warn(entry.path());
  }
}

void Checkpoints::prune(std::int64_t saved_step) const {
  int kept = 0;
  for (const auto& [step, folder] : step_folders(options_.folder)) {
    if (step > saved_step) continue;  // it is of an earlier run, and is replaced when this run reaches its step
    if (inaccessible_.contains(folder) || !is_accessible(folder)) continue;
    if (++kept <= options_.keep) continue;
    options_.before("prune");
    retire(folder);
  }
}

}  // namespace ddprun::checkpoint
