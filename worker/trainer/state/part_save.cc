#include "worker/trainer/state/part_save.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/random.h"
#include "worker/checkpoint/disk_watch.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/comm/collectives.h"
#include "worker/comm/comm_config.h"

namespace ddprun::trainer {
namespace {

using checkpoint::FileDigests;

constexpr char failed = '!';  // begins the answer of a rank that could not do its act

// An act of a save has failed at some rank, and all ranks have ended theirs.
class FailedAct : public Error {
 public:
  // answer: the host and the cause.
  FailedAct(std::size_t rank, const std::string& answer)
      : Error(Errc::io, fmt::format("rank {} on host {} cannot save its part of a checkpoint: {}", rank,
                                    answer.substr(0, answer.find('\n')), answer.substr(answer.find('\n') + 1))) {}
};

// Does this rank's act of a save, whose result is one line a file, and returns the results of all ranks. A disk may
// take any time in which it answers (checkpoint::DiskWatch); the group notices ranks that have ended.
std::vector<std::string> all_do(ProcessGroup& group, const std::function<std::string()>& act) {
  std::string own;
  try {
    own = act();
  } catch (const std::exception& e) {
    own = fmt::format("{}{}\n{}", failed, local_host_name(), e.what());
  }
  const auto answers = all_gather_bytes(group, own, comm::longest_timeout);
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].empty() || answers[rank].front() != failed) continue;
    throw FailedAct(rank, answers[rank].substr(1));
  }
  return answers;
}

std::string lines_of(const FileDigests& files) {
  std::string text;
  for (const auto& [name, digest] : files) text += fmt::format("{} {} {}\n", name, digest.bytes, digest.sha256);
  return text;
}

FileDigests files_in(const std::vector<std::string>& answers) {
  FileDigests files;
  for (const auto& answer : answers) {
    std::istringstream words(answer);
    std::string name;
    checkpoint::FileDigest digest;
    while (words >> name >> digest.bytes >> digest.sha256) files[name] = digest;
  }
  return files;
}

}  // namespace

bool is_first_in_folder(const std::filesystem::path& folder, ProcessGroup& group, std::chrono::milliseconds timeout) {
  const auto nonce = broadcast_bytes(group, random_hex(8), 0);
  std::vector<std::filesystem::path> probes;  // of the ranks up to this one
  for (int rank = 0; rank <= group.rank(); ++rank)
    probes.push_back(folder / fmt::format(".writing-probe-{}-{}", nonce, rank));
  const auto watch = std::make_shared<checkpoint::DiskWatch>();
  const auto all_ask_disk = [&](const std::function<void()>& act) {
    all_do(group, [&] {
      checkpoint::DiskWatch::run(watch, timeout, act);
      return std::string();
    });
  };
  all_ask_disk([watch, folder, own = probes.back()] {
    watch->request("use " + folder.string());
    std::filesystem::create_directories(folder);
    checkpoint::FileWriter(own, watch.get()).finish();
  });
  const auto is_first = std::make_shared<bool>(true);
  all_ask_disk([watch, probes, is_first] {
    for (const auto& probe : std::span(probes).first(probes.size() - 1)) {
      watch->request("find " + probe.string());
      *is_first = *is_first && !std::filesystem::exists(probe);
    }
  });
  all_ask_disk([watch, own = probes.back()] {
    watch->request("remove " + own.string());
    std::error_code ignored;
    std::filesystem::remove(own, ignored);
  });
  return *is_first;
}

void save_parts(const PartsFolder& folder, ProcessGroup& group, const std::string& name, const checkpoint::Content& own,
                const std::string& placements) {
  auto& checkpoints = *folder.checkpoints;
  const auto keepers_do = [&](const std::function<void()>& act) {
    all_do(group, [&] {
      if (folder.is_keeper) act();
      return std::string();
    });
  };
  // All folders have the same files, also of the state, in which each rank notes what it has seen.
  const auto text = broadcast_bytes(group, checkpoint::to_json(own.state), 0);
  const auto state = checkpoint::run_state_from_json(text, "rank 0's state");
  bool has_published = false;
  std::shared_ptr<const checkpoint::FolderLock> locked;
  try {
    keepers_do([&] {
      locked = checkpoints.lock();
      checkpoints.begin(name);
    });
    const auto answers = all_do(group, [&] { return lines_of(checkpoints.write_part(name, group.rank(), own)); });
    keepers_do([&] { checkpoints.complete(name, state, placements, files_in(answers)); });
    keepers_do([&] {
      checkpoints.publish(name);
      has_published = true;
    });
  } catch (const FailedAct&) {
    if (has_published) checkpoints.withdraw(name);
    if (folder.is_keeper) checkpoints.remove_leftovers();
    throw;
  }
  keepers_do([&] { checkpoints.remove_older(name); });
}

}  // namespace ddprun::trainer
