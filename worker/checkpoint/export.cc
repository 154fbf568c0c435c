#include "worker/checkpoint/export.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <stdio.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "common/atomic_file.h"
#include "common/error.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/checkpoint/safetensors.h"

namespace ddprun::checkpoint {
namespace {

constexpr std::size_t read_bytes = std::size_t{4} << 20;

void write_model(const TensorSource& model, FileWriter& out) {
  write_safetensors_header(out, model.tensors(), {{"format", "pt"}});
  std::vector<std::byte> piece(read_bytes);
  for (const TensorInfo& tensor : model.tensors())
    for (std::uint64_t done = 0; done < tensor.bytes();) {
      const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), tensor.bytes() - done));
      model.read(tensor, done, part);
      out.write(part);
      done += part.size();
    }
}

}  // namespace

void export_model(const TensorSource& model, const std::filesystem::path& file) {
  auto aside = file;
  aside += ".tmp." + std::to_string(::getpid());
  try {
    FileWriter out(aside);
    write_model(model, out);
    out.finish();
    if (::rename(aside.c_str(), file.c_str()) != 0)
      throw make_error(Errc::io, "cannot rename {} to {}: {}", aside.string(), file.string(), errno_text(errno));
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_folder(file.has_parent_path() ? file.parent_path() : ".");
}

}  // namespace ddprun::checkpoint
