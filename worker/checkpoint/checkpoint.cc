#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "worker/checkpoint/file_writer.h"

namespace ddprun::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the same for the folders that any of the processes sees.
StepFolders step_folders(const fs::path& folder, const Peers& peers) {
  std::string own;
  for (const auto& [step, path] : checkpoint::step_folders(folder)) own += path.filename().string() + "\n";
  std::set<std::pair<std::int64_t, fs::path>> all;
  for (const auto& answer : peers.all_gather(own)) {
    std::istringstream names(answer);
    for (std::string name; std::getline(names, name);)
      if (const auto step = step_of(name)) all.emplace(*step, folder / name);
  }
  return {all.rbegin(), all.rend()};
}

}  // namespace

Checkpoints::Checkpoints(CheckpointOptions options)
    : options_(std::move(options)), watch_(std::make_shared<DiskWatch>()) {
  if (options_.keep < 1) throw make_error(Errc::internal, "checkpoints: keep is {}", options_.keep);
  folder_ = std::make_shared<CheckpointFolder>(options_, watch_);
}

std::optional<Found> Checkpoints::newest(const Peers& peers, const ContentCheck& check) {
  const auto folders = step_folders(options_.folder, peers);
  std::string reason;  // why the newest one cannot be used
  bool all_are_damaged = true;
  const auto skip = [&](const fs::path& folder, const char* how, const Error& error) {
    if (peers.rank == 0) log::warn("checkpoint {} {}: {}", folder.string(), how, error.what());
    if (reason.empty()) reason = error.what();
  };
  for (const auto& [step, folder] : folders) {
    try {
      return examine_checkpoint(folder, peers, check);
    } catch (const InaccessibleFile& e) {
      unsure_.inaccessible.insert(folder);
      all_are_damaged = false;
      skip(folder, "cannot be read; it is skipped and left as it is", e);
    } catch (const Error& e) {
      if (e.code() != Errc::io) throw;
      unsure_.incomplete.insert(folder);
      skip(folder, "is damaged and skipped", e);
    }
  }
  if (folders.empty()) return std::nullopt;
  const auto message = fmt::format(
      "no checkpoint in {} can be used ({} found); the newest one: {}. To start from step 0 nevertheless, "
      "set another checkpoint.dir, or checkpoint.resume = never, which replaces damaged checkpoints",
      options_.folder.string(), folders.size(), reason);
  if (all_are_damaged) throw Error(Errc::usage, message);
  throw InaccessibleFile(message);
}

bool Checkpoints::any() const {
  return !step_folders(options_.folder).empty();
}

std::optional<Found> Checkpoints::best(const Peers& peers, const ContentCheck& check) const {
  const auto folder = options_.folder / best_name;
  const auto answers = peers.all_gather(fs::exists(folder) ? "there" : "");
  if (std::ranges::count(answers, "there") == 0) return std::nullopt;
  return examine_checkpoint(folder, peers, check);
}

template <class Act>
auto Checkpoints::watched(Act act) const {
  return DiskWatch::run(watch_, options_.timeout, [folder = folder_, act = std::move(act)] { return act(*folder); });
}

void Checkpoints::save(const Content& content) {
  save_as(step_name(content.state.step), content);
}

void Checkpoints::save_best(const Content& content) {
  save_as(best_name, content);
}

void Checkpoints::save_as(const std::string& name, const Content& content) {
  unsure_.incomplete.erase(options_.folder / name);
  watched([name, content, unsure = unsure_](const CheckpointFolder& folder) { folder.save(name, content, unsure); });
}

std::shared_ptr<const FolderLock> Checkpoints::lock() const {
  auto locked = watched([](const CheckpointFolder& folder) { return folder.lock(); });
  // A disk that does not answer keeps no thread: then the lock stays until this process ends.
  return {locked.release(), [watch = watch_, timeout = options_.timeout](const FolderLock* held) {
            try {
              DiskWatch::run(watch, timeout, [held] { delete held; });
            } catch (const Error& e) {
              log::debug("{}", e.what());
            }
          }};
}

void Checkpoints::begin(const std::string& name) const {
  watched([=](const CheckpointFolder& folder) { folder.begin(name); });
}

FileDigests Checkpoints::write_part(const std::string& name, int rank, const Content& content) const {
  return watched([=](const CheckpointFolder& folder) { return folder.write_part(name, rank, content); });
}

void Checkpoints::complete(const std::string& name, const RunState& state, const std::string& placements,
                           FileDigests parts) const {
  watched([=](const CheckpointFolder& folder) { folder.complete(name, state, placements, parts); });
}

void Checkpoints::publish(const std::string& name) const {
  watched([=](const CheckpointFolder& folder) { folder.publish(name); });
}

void Checkpoints::withdraw(const std::string& name) const {
  try {
    watched([=](const CheckpointFolder& folder) { folder.withdraw(name); });
  } catch (const Error& e) {
    log::warn("{} is not the checkpoint that it was before: {}", (options_.folder / name).string(), e.what());
  }
}

void Checkpoints::remove_older(const std::string& name) {
  unsure_.incomplete.erase(options_.folder / name);
  watched([name, unsure = unsure_](const CheckpointFolder& folder) { folder.remove_older(name, unsure); });
}

void Checkpoints::remove_leftovers() const {
  try {
    watched([](const CheckpointFolder& folder) { folder.remove_leftovers(); });
  } catch (const Error& e) {
    log::warn("{}", e.what());
  }
}

}  // namespace ddprun::checkpoint
