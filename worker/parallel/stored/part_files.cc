#include "worker/parallel/stored/part_files.h"

#include "common/error.h"

namespace ddprun::stored {

void PartFiles::read(Kind kind, const sharding::PlacedTensor& tensor, int rank, std::uint64_t offset,
                     std::span<std::byte> out) {
  const auto name = state_.file_of(kind, rank);
  auto found = files_.find(name);
  if (found == files_.end()) found = files_.try_emplace(name, folder_ / name).first;
  const auto* info = found->second.find(state_.name_in_file(kind, tensor.spec().name));
  if (!info || info->dtype != tensor.spec().dtype ||
      info->bytes() != static_cast<std::uint64_t>(tensor.local_bytes(rank)))
    throw make_error(Errc::io, "{} does not have the part of {} that it should have", (folder_ / name).string(),
                     tensor.spec().name);
  found->second.read(*info, offset, out);
}

}  // namespace ddprun::stored
