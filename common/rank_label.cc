#include "ddprun/common/rank_label.h"

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "ddprun/common/printable.h"

namespace ddprun {
namespace {

std::filesystem::path file_of(const std::filesystem::path& error_file) {
  return error_file.string() + ".label";
}

}  // namespace

void write_rank_label(const std::filesystem::path& error_file, std::string_view label) {
  write_file_atomically(file_of(error_file), std::string(label) + "\n");
}

std::string read_rank_label(const std::filesystem::path& error_file) {
  std::error_code ignored;
  if (error_file.empty() || !std::filesystem::exists(file_of(error_file), ignored)) return {};
  try {
    const std::string text = read_whole_file(file_of(error_file));
    return printable(text.substr(0, text.find('\n')));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace ddprun
