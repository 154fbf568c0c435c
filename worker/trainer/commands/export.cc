#include "worker/checkpoint/export.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/stored/load.h"
#include "worker/parallel/stored/model_source.h"
#include "worker/trainer/commands/command.h"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

// Returns a checkpoint, or the newest one in a folder of checkpoints.
checkpoint::Found find_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw make_error(Errc::usage, "{}: there is no such folder", folder.string());
  if (fs::exists(folder / checkpoint::manifest_name)) return checkpoint::verify_checkpoint(folder, stored::check_files);
  if (auto found = checkpoint::Checkpoints({.folder = folder}).newest({}, stored::check_files))
    return std::move(*found);
  throw make_error(Errc::usage, "{} is no checkpoint, and holds none", folder.string());
}

// Does the same. A damaged checkpoint is bad input; one that cannot be read is not.
checkpoint::Found find_sound_checkpoint(const fs::path& folder) {
  try {
    return find_checkpoint(folder);
  } catch (const checkpoint::InaccessibleFile&) {
    throw;
  } catch (const Error& e) {
    throw Error(Errc::usage, e.what());
  }
}

int export_checkpoint(const std::vector<std::string>& words) {
  if (words.size() != 2) throw Error(Errc::usage, "expected: ddprun-worker export CHECKPOINT FILE");
  if (fs::exists(fs::path(words[1]).parent_path() / checkpoint::manifest_name))
    throw make_error(Errc::usage, "{}: that folder is a checkpoint, whose files stay as they are", words[1]);
  const auto found = find_sound_checkpoint(words[0]);
  const auto model = stored::open_model(found);
  checkpoint::export_model(*model.tensors, words[1]);
  write_standard_output(fmt::format("{}: the {} of {}\n", words[1],
                                    model.has_averages ? "averages of the parameters" : "model",
                                    found.folder.string()));
  return exit_success;
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .usage = "export CHECKPOINT FILE",
          .help =
              "export writes the model of a checkpoint, or of the newest one in a folder of checkpoints, into one "
              "safetensors file.\n",
          .run_words = export_checkpoint};
}

}  // namespace ddprun::trainer
