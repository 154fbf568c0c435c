#include "worker/parallel/stored/part_files.h"

#include "common/error.h"
#include "common/printable.h"

namespace ddprun::stored {

void PartFiles::read(Kind kind, const sharding::PlacedTensor& tensor, int rank, std::uint64_t offset,
                     std::span<std::byte> out) {
  const auto [file, info] = find(kind, tensor, rank);
  file.read(info, offset, out);
}

void PartFiles::check(int rank) {
  for (const Kind kind : all_kinds) {
    const StoredTensors& stored = state_.of(kind);
    for (std::size_t i = 0; i < stored.tensors.size(); ++i)
      if (stored.is_written_by(rank, i)) find(kind, stored.tensors[i], rank);
  }
}

PartFiles::Part PartFiles::find(Kind kind, const sharding::PlacedTensor& tensor, int rank) {
  const auto name = state_.file_of(kind, rank);
  auto found = files_.find(name);
  if (found == files_.end()) found = files_.try_emplace(name, folder_ / name).first;
  const auto* info = found->second.find(state_.name_in_file(kind, tensor.spec().name));
  if (!info || info->dtype != tensor.spec().dtype ||
      info->bytes() != static_cast<std::uint64_t>(tensor.local_bytes(rank)))
    throw make_error(Errc::io, "{} does not have the part of {} that it should have", (folder_ / name).string(),
                     printable(tensor.spec().name));
  return {found->second, *info};
}

}  // namespace ddprun::stored
