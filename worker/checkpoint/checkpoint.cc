#include "ddprun/worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <stdio.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/worker/checkpoint/manifest.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step_";
constexpr std::string_view aside_prefix = ".writing-";  // not yet, or no longer, a checkpoint

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

// Newest first.
std::vector<std::pair<std::int64_t, fs::path>> step_folders(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> all;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(folder, status)) {
    if (const auto step = step_of(entry.path())) all.emplace_back(*step, entry.path());
  }
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

// Renamed first, so that a half removed folder never looks like a checkpoint.
void retire(const fs::path& folder) {
  const auto aside = folder.parent_path() / (std::string(aside_prefix) + folder.filename().string() + "-old");
  if (::rename(folder.c_str(), aside.c_str()) != 0)
    log::warn("cannot rename {}: {}", folder.string(), errno_text(errno));
  else
    remove_or_warn(aside);
}

template <class Write>
FileDigest write_file(const fs::path& path, Write&& write) {
  FileWriter out(path);
  write(out);
  return out.finish();
}

}  // namespace

Found verify_checkpoint(const fs::path& folder) {
  const auto manifest_path = folder / manifest_name;
  const auto manifest = manifest_from_json(read_whole_file(manifest_path), manifest_path.string());
  for (const auto* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    if (!manifest.files.contains(name)) throw make_error(Errc::io, "{} does not list {}", manifest_path.string(), name);
  }
  for (const auto& [name, expected] : manifest.files) {
    const auto found = digest_of_file(folder / name);
    if (found.bytes != expected.bytes)
      throw make_error(Errc::io, "{} has {} bytes, its manifest says {}", (folder / name).string(), found.bytes,
                       expected.bytes);
    if (found.sha256 != expected.sha256)
      throw make_error(Errc::io, "{} has changed: its SHA-256 is not the one of its manifest",
                       (folder / name).string());
  }
  const auto state_path = folder / "state.json";
  return {folder, run_state_from_json(read_whole_file(state_path), state_path.string())};
}

Checkpoints::Checkpoints(CheckpointOptions options) : options_(std::move(options)) {
  if (options_.keep < 1) throw make_error(Errc::internal, "checkpoints: keep is {}", options_.keep);
  make_folder(options_.folder);
}

std::optional<Found> Checkpoints::newest() const {
  for (const auto& [step, folder] : step_folders(options_.folder)) {
    try {
      return verify_checkpoint(folder);
    } catch (const Error& e) {
      log::warn("checkpoint {} is skipped: {}", folder.string(), e.what());
    }
  }
  return std::nullopt;
}

void Checkpoints::save(const Content& content) {
  make_folder(options_.folder);
  remove_leftovers();
  const auto target = options_.folder / folder_name(content.state.step);
  try {
    publish(write_aside(content), target);
  } catch (...) {
    remove_leftovers();
    throw;
  }
  prune(content.state.step);
}

fs::path Checkpoints::write_aside(const Content& content) const {
  auto aside = options_.folder / (std::string(aside_prefix) + folder_name(content.state.step));
  options_.before("create the folder");
  make_folder(aside);
  Manifest manifest{.step = content.state.step};
  const auto add = [&](const std::string& name, const auto& write) {
    options_.before("write " + name);
    manifest.files[name] = write_file(aside / name, write);
  };
  add("model.safetensors", [&](FileWriter& out) { write_safetensors(out, content.model, {{"format", "pt"}}); });
  add("optimizer.safetensors", [&](FileWriter& out) { write_safetensors(out, content.optimizer); });
  add("state.json", [&](FileWriter& out) { out.write(to_json(content.state)); });
  options_.before("write the manifest");
  write_file(aside / manifest_name, [&](FileWriter& out) { out.write(to_json(manifest)); });
  options_.before("flush the folder");
  sync_folder(aside);
  return aside;
}

void Checkpoints::publish(const fs::path& aside, const fs::path& target) const {
  options_.before("publish");
  // A folder of that name is there when it was skipped as torn and the run has come back to its step: it makes room.
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
    if (step > saved_step) continue;  // from before the run went back: overwritten when it gets there
    if (++kept <= options_.keep) continue;
    options_.before("prune");
    retire(folder);
  }
}

}  // namespace ddprun::checkpoint
