#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddprun::data {

// An array of unsigned bytes as an IDX file holds it, last dimension fastest.
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

struct IdxOptions {
  int dimensions = 1;                              // the number that the file must have
  std::int64_t max_bytes = std::int64_t{1} << 32;  // limit of the values; a file that claims more is refused
};

// Reads an IDX file (the format of MNIST and its relatives), plain or gzip-compressed, whatever its name:
//   0 0 08 D   two zero bytes, the type (08: unsigned byte, the only one read), the number of dimensions
//   D x u32    the dimensions, big-endian
//   values     exactly their product in bytes
// Throws Errc::usage when the file cannot be opened, Errc::io naming file, byte offset (in the uncompressed stream),
// what was expected and what was found. Memory grows with what the file really holds, not with what its header claims.
IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options);

}  // namespace ddprun::data
