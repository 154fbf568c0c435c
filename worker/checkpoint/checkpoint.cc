#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sstream>
#include <stdio.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/log.h"
#include "worker/checkpoint/file_writer.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view aside_prefix = ".writing-";  // not yet, or no longer, a checkpoint

using Folders = std::vector<std::pair<std::int64_t, fs::path>>;  // of checkpoints, with their steps

// Returns the folders of checkpoints, newest first.
Folders step_folders(const fs::path& folder) {
  Folders all;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(folder, status)) {
    if (const auto step = step_of(entry.path())) all.emplace_back(*step, entry.path());
  }
  if (status && status != std::errc::no_such_file_or_directory)
    throw make_error(Errc::io, "cannot list {}: {}", folder.string(), status.message());
  std::sort(all.rbegin(), all.rend());
  return all;
}

// Returns the same for the folders that any of the processes sees.
Folders step_folders(const fs::path& folder, const Peers& peers) {
  std::string own;
  for (const auto& [step, path] : step_folders(folder)) own += path.filename().string() + "\n";
  std::set<std::pair<std::int64_t, fs::path>> all;
  for (const auto& answer : peers.all_gather(own)) {
    std::istringstream names(answer);
    for (std::string name; std::getline(names, name);)
      if (const auto step = step_of(name)) all.emplace(*step, folder / name);
  }
  return {all.rbegin(), all.rend()};
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

Manifest read_manifest(const fs::path& checkpoint) {
  const auto path = checkpoint / manifest_name;
  return manifest_from_json(read_file(path), path.string());
}

// Returns the names of the files that a checkpoint has, or should have if its manifest cannot be used.
std::vector<std::string> names_of_files(const fs::path& checkpoint) {
  std::vector<std::string> names{std::string(manifest_name)};
  try {
    for (const auto& [name, digest] : read_manifest(checkpoint).files) names.push_back(name);
  } catch (const Error&) {
    names.insert(names.end(), {model_file, optimizer_file, state_file});
  }
  return names;
}

// Throws InaccessibleFile if one of the files exists and cannot be opened or read.
void check_accessible(const fs::path& checkpoint) {
  for (const auto& name : names_of_files(checkpoint)) {
    try {
      check_readable(checkpoint / name);
    } catch (const InaccessibleFile&) {
      throw;
    } catch (const Error&) {
      // a missing file: the checkpoint is torn
    }
  }
}

bool is_accessible(const fs::path& checkpoint) {
  try {
    check_accessible(checkpoint);
  } catch (const InaccessibleFile&) {
    return false;
  }
  return true;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw make_error(Errc::io, "cannot rename {} to {}: {}", from.string(), to.string(), errno_text(errno));
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

}  // namespace

Checkpoints::Checkpoints(CheckpointOptions options) : options_(std::move(options)) {
  if (options_.keep < 1) throw make_error(Errc::internal, "checkpoints: keep is {}", options_.keep);
  if (options_.makes_folder) make_folder(options_.folder);
}

std::optional<Found> Checkpoints::newest(const Peers& peers) {
  const auto folders = step_folders(options_.folder, peers);
  std::string reason;  // why the newest one cannot be used
  const auto skip = [&](const fs::path& folder, const char* how, const Error& error) {
    if (peers.rank == 0) log::warn("checkpoint {} {}: {}", folder.string(), how, error.what());
    if (reason.empty()) reason = error.what();
  };
  for (const auto& [step, folder] : folders) {
    try {
      return examine_checkpoint(folder, peers);
    } catch (const InaccessibleFile& e) {
      inaccessible_.insert(folder);
      skip(folder, "cannot be read; it is skipped and left as it is", e);
    } catch (const Error& e) {
      if (e.code() != Errc::io) throw;
      incomplete_.insert(folder);
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
  save_as(step_name(content.state.step), content);
}

void Checkpoints::save_best(const Content& content) {
  save_as(best_name, content);
}

std::optional<Found> Checkpoints::best(const Peers& peers) const {
  const auto folder = options_.folder / best_name;
  const auto answers = peers.all_gather(fs::exists(folder) ? "there" : "");
  if (std::ranges::count(answers, "there") == 0) return std::nullopt;
  return examine_checkpoint(folder, peers);
}

void Checkpoints::save_as(const std::string& name, const Content& content) {
  begin(name);
  try {
    write_rest(name, {.step = content.state.step, .files = write_whole(aside_of(name), content)}, content.state);
    publish(name);
  } catch (...) {
    remove_leftovers();
    throw;
  }
  remove_older(name);
}

// The folder in which a checkpoint is written; after an exchange of names the one that it has replaced.
fs::path Checkpoints::aside_of(const std::string& name) const {
  return options_.folder / (std::string(aside_prefix) + name);
}

// The one that a checkpoint has replaced, where folders cannot exchange their names.
fs::path Checkpoints::replaced_of(const std::string& name) const {
  return aside_of(name + "-old");
}

void Checkpoints::begin(const std::string& name) const {
  make_folder(options_.folder);
  remove_leftovers();
  check_replaceable(options_.folder / name);
  options_.before("create the folder");
  make_folder(aside_of(name));
}

void Checkpoints::check_replaceable(const fs::path& target) const {
  if (!fs::exists(target)) return;
  try {
    check_accessible(target);
  } catch (const InaccessibleFile& e) {
    throw make_error(Errc::io, "cannot save {}: a checkpoint of that name exists and cannot be read ({}); move it away",
                     target.string(), e.what());
  }
}

FileDigests Checkpoints::write_whole(const fs::path& aside, const Content& content) const {
  FileDigests files;
  const auto add = [&](const char* file, const std::vector<TensorView>& tensors, const Metadata& metadata = {}) {
    options_.before(std::string("write ") + file);
    files[file] = write_file(aside / file, [&](FileWriter& out) { write_safetensors(out, tensors, metadata); });
  };
  add(model_file, content.model, {{"format", "pt"}});
  add(optimizer_file, content.optimizer);
  if (!content.hook.empty()) add(hook_file, content.hook);
  if (!content.ema.empty()) add(ema_file, content.ema, {{"format", "pt"}});
  return files;
}

FileDigests Checkpoints::write_part(const std::string& name, int rank, const Content& content) const {
  std::vector<TensorView> tensors;
  const auto add = [&](std::string_view prefix, const std::vector<TensorView>& views) {
    for (TensorView view : views) {
      view.name.insert(0, prefix);
      tensors.push_back(std::move(view));
    }
  };
  add(model_prefix, content.model);
  add(optimizer_prefix, content.optimizer);
  add(ema_prefix, content.ema);
  FileDigests files;
  const auto write = [&](const std::string& file, const std::vector<TensorView>& views) {
    options_.before("write " + file);
    files[file] = write_file(aside_of(name) / file, [&](FileWriter& out) { write_safetensors(out, views); });
  };
  write(part_file(rank), tensors);
  if (!content.hook.empty()) write(hook_file, content.hook);
  sync_folder(aside_of(name));
  return files;
}

void Checkpoints::complete(const std::string& name, const RunState& state, const std::string& placements,
                           FileDigests parts) const {
  options_.before(std::string("write ") + placements_file);
  parts[placements_file] =
      write_file(aside_of(name) / placements_file, [&](FileWriter& out) { out.write(placements); });
  write_rest(name, {.step = state.step, .has_parts = true, .files = std::move(parts)}, state);
}

// Writes what is written last.
void Checkpoints::write_rest(const std::string& name, Manifest manifest, const RunState& state) const {
  const auto aside = aside_of(name);
  options_.before(std::string("write ") + state_file);
  manifest.files[state_file] = write_file(aside / state_file, [&](FileWriter& out) { out.write(to_json(state)); });
  options_.before("write the manifest");
  write_file(aside / manifest_name, [&](FileWriter& out) { out.write(to_json(manifest)); });
  options_.before("flush the folder");
  sync_folder(aside);
}

// A folder of that name exists if it is the best one so far, and if it was skipped as damaged, or ignored, and the run
// has reached its step again.
void Checkpoints::publish(const std::string& name) const {
  const auto aside = aside_of(name), target = options_.folder / name;
  options_.before("publish");
  const bool replaces = fs::exists(target);
  if (!replaces || !exchange(aside, target)) {
    if (replaces) rename_folder(target, replaced_of(name));
    try {
      rename_folder(aside, target);
    } catch (const Error&) {
      if (replaces) rename_folder(replaced_of(name), target);
      throw;
    }
  }
  try {
    options_.before("flush the rename");
    sync_folder(options_.folder);
  } catch (...) {
    withdraw(name);
    throw;
  }
}

void Checkpoints::withdraw(const std::string& name) const {
  const auto aside = aside_of(name), target = options_.folder / name;
  try {
    if (fs::exists(aside) && exchange(aside, target)) return;
    rename_folder(target, aside);
    if (fs::exists(replaced_of(name))) rename_folder(replaced_of(name), target);
  } catch (const std::exception& e) {
    log::warn("{} is not the checkpoint that it was before: {}", target.string(), e.what());
  }
}

void Checkpoints::remove_older(const std::string& name) {
  options_.before("remove the replaced one");
  remove_leftovers();
  incomplete_.erase(options_.folder / name);
  if (const auto step = step_of(name)) prune(*step);
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
    if (kept < options_.keep) {
      if (!incomplete_.contains(folder)) ++kept;
      continue;
    }
    options_.before("prune");
    retire(folder);
  }
}

}  // namespace ddprun::checkpoint
