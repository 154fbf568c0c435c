#include "worker/checkpoint/checkpoint_folder.h"

#include <cerrno>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/log.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/checkpoint/search.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view aside_prefix = ".writing-";  // not yet, or no longer, a checkpoint

void make_folder(const fs::path& folder) {
  std::error_code status;
  fs::create_directories(folder, status);
  if (status) throw make_error(Errc::io, "cannot create folder {}: {}", folder.string(), status.message());
}

// Returns what is in a folder; nothing if it cannot be listed.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code status;
  for (fs::directory_iterator at(folder, status), end; !status && at != end; at.increment(status))
    entries.push_back(at->path());
  return entries;
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

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw make_error(Errc::io, "cannot rename {} to {}: {}", from.string(), to.string(), errno_text(errno));
}

// Gives each folder the other's name at once. Returns false if the file system cannot do that.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

CheckpointFolder::CheckpointFolder(CheckpointOptions options, std::shared_ptr<DiskWatch> watch)
    : options_(std::move(options)), watch_(std::move(watch)) {
  if (options_.makes_folder) make_folder(options_.folder);
}

std::unique_ptr<FolderLock> CheckpointFolder::lock() const {
  request("use", options_.folder);
  make_folder(options_.folder);
  return std::make_unique<FolderLock>(options_.folder, *watch_);
}

void CheckpointFolder::save(const std::string& name, const Content& content, const UnsureCheckpoints& unsure) const {
  const auto locked = lock();
  begin(name);
  try {
    write_rest(name, {.step = content.state.step, .files = write_whole(aside_of(name), content)}, content.state);
    publish(name);
  } catch (...) {
    remove_leftovers();
    throw;
  }
  remove_older(name, unsure);
}

void CheckpointFolder::request(std::string_view what) const {
  watch_->request(fmt::format("{} in {}", what, options_.folder.string()));
  options_.before(what);
}

void CheckpointFolder::request(std::string_view what, const fs::path& path) const {
  watch_->request(fmt::format("{} {}", what, path.string()));
}

FileDigest CheckpointFolder::write_file(const fs::path& path, const std::function<void(FileWriter&)>& write) const {
  FileWriter out(path, watch_.get());
  write(out);
  return out.finish();
}

// The folder in which a checkpoint is written; after an exchange of names the one that it has replaced.
fs::path CheckpointFolder::aside_of(const std::string& name) const {
  return options_.folder / (std::string(aside_prefix) + name);
}

// The one that a checkpoint has replaced, where folders cannot exchange their names.
fs::path CheckpointFolder::replaced_of(const std::string& name) const {
  return aside_of(name + "-old");
}

void CheckpointFolder::begin(const std::string& name) const {
  remove_leftovers();
  check_replaceable(options_.folder / name);
  request("create the folder");
  make_folder(aside_of(name));
}

void CheckpointFolder::flush_folder(const fs::path& folder) const {
  request("flush", folder);
  sync_folder(folder);
}

void CheckpointFolder::check_replaceable(const fs::path& target) const {
  request("find", target);
  if (!fs::exists(target)) return;
  try {
    check_accessible(target);
  } catch (const InaccessibleFile& e) {
    throw make_error(Errc::io, "cannot save {}: a checkpoint of that name exists and cannot be read ({}); move it away",
                     target.string(), e.what());
  }
}

// Throws InaccessibleFile if one of the files exists and cannot be opened or read.
void CheckpointFolder::check_accessible(const fs::path& checkpoint) const {
  request("read", checkpoint / manifest_name);
  for (const auto& name : names_of_files(checkpoint)) {
    request("read", checkpoint / name);
    try {
      check_readable(checkpoint / name);
    } catch (const InaccessibleFile&) {
      throw;
    } catch (const Error&) {
      // a missing file: the checkpoint is torn
    }
  }
}

bool CheckpointFolder::is_accessible(const fs::path& checkpoint) const {
  try {
    check_accessible(checkpoint);
  } catch (const InaccessibleFile&) {
    return false;
  }
  return true;
}

FileDigests CheckpointFolder::write_whole(const fs::path& aside, const Content& content) const {
  FileDigests files;
  const auto add = [&](const char* file, const std::vector<TensorView>& tensors, const Metadata& metadata = {}) {
    request(std::string("write ") + file);
    files[file] = write_file(aside / file, [&](FileWriter& out) { write_safetensors(out, tensors, metadata); });
  };
  add(model_file, content.model, {{"format", "pt"}});
  add(optimizer_file, content.optimizer);
  if (!content.hook.empty()) add(hook_file, content.hook);
  if (!content.ema.empty()) add(ema_file, content.ema, {{"format", "pt"}});
  return files;
}

FileDigests CheckpointFolder::write_part(const std::string& name, int rank, const Content& content) const {
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
    request("write " + file);
    files[file] = write_file(aside_of(name) / file, [&](FileWriter& out) { write_safetensors(out, views); });
  };
  write(part_file(rank), tensors);
  if (!content.hook.empty()) write(hook_file, content.hook);
  flush_folder(aside_of(name));
  return files;
}

void CheckpointFolder::complete(const std::string& name, const RunState& state, const std::string& placements,
                                FileDigests parts) const {
  request(std::string("write ") + placements_file);
  parts[placements_file] =
      write_file(aside_of(name) / placements_file, [&](FileWriter& out) { out.write(placements); });
  write_rest(name, {.step = state.step, .has_parts = true, .files = std::move(parts)}, state);
}

// Writes what is written last.
void CheckpointFolder::write_rest(const std::string& name, Manifest manifest, const RunState& state) const {
  const auto aside = aside_of(name);
  request(std::string("write ") + state_file);
  manifest.files[state_file] = write_file(aside / state_file, [&](FileWriter& out) { out.write(to_json(state)); });
  request("write the manifest");
  write_file(aside / manifest_name, [&](FileWriter& out) { out.write(to_json(manifest)); });
  request("flush the folder");
  sync_folder(aside);
}

// A folder of that name exists if it is the best one so far, and if it was skipped as damaged, or ignored, and the run
// has reached its step again.
void CheckpointFolder::publish(const std::string& name) const {
  const auto aside = aside_of(name), target = options_.folder / name;
  request("publish");
  const bool replaces = fs::exists(target);
  request("rename", aside);
  if (!replaces || !exchange(aside, target)) {
    if (replaces) {
      request("rename", target);
      rename_folder(target, replaced_of(name));
    }
    try {
      request("rename", aside);
      rename_folder(aside, target);
    } catch (const Error&) {
      if (replaces) rename_folder(replaced_of(name), target);
      throw;
    }
  }
  try {
    request("flush the rename");
    sync_folder(options_.folder);
    request("use", target);  // not if this act is abandoned
  } catch (...) {
    undo_publish(name);
    throw;
  }
}

void CheckpointFolder::withdraw(const std::string& name) const {
  request("withdraw", options_.folder / name);
  undo_publish(name);
}

// Makes no request, as an act that was abandoned while it published takes that back.
void CheckpointFolder::undo_publish(const std::string& name) const {
  const auto aside = aside_of(name), target = options_.folder / name;
  try {
    if (fs::exists(aside) && exchange(aside, target)) return;
    rename_folder(target, aside);
    if (fs::exists(replaced_of(name))) rename_folder(replaced_of(name), target);
  } catch (const std::exception& e) {
    log::warn("{} is not the checkpoint that it was before: {}", target.string(), e.what());
  }
}

void CheckpointFolder::remove_older(const std::string& name, const UnsureCheckpoints& unsure) const {
  request("remove the replaced one");
  remove_leftovers();
  if (const auto step = step_of(name)) prune(*step, unsure);
}

void CheckpointFolder::remove_leftovers() const {
  request("list", options_.folder);
  for (const auto& path : entries_of(options_.folder))
    if (path.filename().string().starts_with(aside_prefix)) remove(path);
}

void CheckpointFolder::remove(const fs::path& path) const {
  std::error_code status;
  request("list", path);
  for (const auto& entry : entries_of(path)) {
    request("remove", entry);
    fs::remove_all(entry, status);
  }
  request("remove", path);
  fs::remove_all(path, status);
  if (status) log::warn("cannot remove {}: {}", path.string(), status.message());
}

// Removes a checkpoint; it is renamed first, so that a half removed folder never looks like a checkpoint.
void CheckpointFolder::retire(const fs::path& checkpoint) const {
  const auto aside = replaced_of(checkpoint.filename().string());
  request("rename", checkpoint);
  if (::rename(checkpoint.c_str(), aside.c_str()) != 0)
    log::warn("cannot rename {}: {}", checkpoint.string(), errno_text(errno));
  else
    remove(aside);
}

void CheckpointFolder::prune(std::int64_t saved_step, const UnsureCheckpoints& unsure) const {
  int kept = 0;
  request("list", options_.folder);
  for (const auto& [step, folder] : step_folders(options_.folder)) {
    if (step > saved_step) continue;  // it is of an earlier run, and is replaced when this run reaches its step
    if (unsure.inaccessible.contains(folder) || !is_accessible(folder)) continue;
    if (kept < options_.keep) {
      if (!unsure.incomplete.contains(folder)) ++kept;
      continue;
    }
    request("prune");
    retire(folder);
  }
}

}  // namespace ddprun::checkpoint
