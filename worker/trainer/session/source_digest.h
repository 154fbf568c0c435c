#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/trainer/session/shared_items.h"

// The contents of files in a few characters, for a comparison of ranks. CRC-32C is to find files that differ by
// mistake, and its instruction takes a tenth of the time of SHA-256.
namespace ddprun::trainer {

inline constexpr std::size_t whole_digest_bytes = std::size_t{64} << 20;

// Returns "47040000 bytes, CRC-32C 1f2e3d4c": of all bytes up to whole_digest_bytes or if is_whole, otherwise of 1 MiB
// in blocks that are spread evenly.
std::string content_digest(std::span<const std::byte> bytes, bool is_whole = false);
// Returns the digest of a file. Throws what MappedFile throws.
std::string file_digest(const std::filesystem::path& file);

// Returns an item for each source. Files that are read sample by sample count as one sequence of bytes: whole up to
// whole_digest_bytes of all together, otherwise 1 MiB spread evenly over them; their names and sizes always. Throws
// Errc::io naming a file that cannot be read.
SharedItems digests_of(const std::vector<data::Source>& sources);

}  // namespace ddprun::trainer
