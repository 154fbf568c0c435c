#include "common/rank_label.h"

#include "common/atomic_file.h"
#include "common/bounded_file.h"
#include "common/printable.h"

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
  if (error_file.empty()) return {};
  constexpr std::size_t longest = 4096;
  const auto text = read_front_of_file(file_of(error_file), longest);
  return printable(text.substr(0, text.find('\n')));
}

}  // namespace ddprun
