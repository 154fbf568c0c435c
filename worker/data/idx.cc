#include "worker/data/idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include <fmt/ranges.h>
#include <zlib.h>

#include "common/error.h"

namespace ddprun::data {
namespace {

constexpr int unsigned_byte = 0x08;
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

// A file read front to back; zlib passes plain files through.
class Stream {
 public:
  explicit Stream(const std::filesystem::path& path) : path_(path), file_(::gzopen(path.c_str(), "rb"), &::gzclose) {
    if (!file_) throw make_error(Errc::usage, "cannot open {}: {}", path.string(), errno_text(errno));
    ::gzbuffer(file_.get(), 128 * 1024);
  }

  // Reads up to size bytes; fewer only at the end of the stream.
  std::size_t read(std::uint8_t* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const int n = ::gzread(file_.get(), out + done, static_cast<unsigned>(std::min(size - done, chunk_bytes)));
      if (n < 0) fail_read();
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
      offset_ += n;
    }
    if (done < size) check_complete();
    return done;
  }

  std::int64_t offset() const { return offset_; }
  std::string name() const { return path_.string(); }

 private:
  [[noreturn]] void fail_read() {
    const int cause = errno;
    int status = 0;
    std::string_view text = ::gzerror(file_.get(), &status);
    if (status == Z_ERRNO) throw make_error(Errc::io, "cannot read {}: {}", name(), errno_text(cause));
    if (text.ends_with("incorrect data check"))
      throw make_error(Errc::io, "{}: offset {}: the file is damaged: its checksum does not match", name(), offset_);
    if (const auto path_end = text.rfind(": "); path_end != std::string_view::npos) text.remove_prefix(path_end + 2);
    throw make_error(Errc::io, "{}: offset {}: the compressed data is damaged ({})", name(), offset_, text);
  }
  // gzread reports a compressed stream that stops early as a short read and an error state.
  void check_complete() {
    int status = 0;
    ::gzerror(file_.get(), &status);
    if (status == Z_BUF_ERROR)
      throw make_error(Errc::io, "{}: offset {}: the compressed stream is cut short", name(), offset_);
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::int64_t offset_ = 0;
};

void read_magic(Stream& in, int dimensions) {
  std::array<std::uint8_t, 4> magic{};
  const auto n = in.read(magic.data(), magic.size());
  if (n < magic.size())
    throw make_error(Errc::io, "{}: offset {}: the file ends within the magic number (expected 4 bytes)", in.name(), n);
  if (magic[0] != 0 || magic[1] != 0)
    throw make_error(Errc::io, "{}: offset 0: expected the bytes 00 00 of an IDX file, found {:02x} {:02x}", in.name(),
                     magic[0], magic[1]);
  if (magic[2] != unsigned_byte)
    throw make_error(Errc::io, "{}: offset 2: expected element type 08 (unsigned byte), found {:02x}", in.name(),
                     magic[2]);
  if (magic[3] != dimensions)
    throw make_error(Errc::io, "{}: offset 3: expected {} dimension{}, found {}", in.name(), dimensions,
                     dimensions == 1 ? "" : "s", magic[3]);
}

// Returns a text such as "60000 images of 28 x 28 bytes", "60000 labels" or "2 x 3 values".
std::string contents_text(const std::vector<std::int64_t>& shape) {
  if (shape.size() == 1) return fmt::format("{} labels", shape[0]);
  if (shape.size() == 3) return fmt::format("{} images of {} x {} bytes", shape[0], shape[1], shape[2]);
  return fmt::format("{} values", fmt::join(shape, " x "));
}

void check_total(const Stream& in, const std::vector<std::int64_t>& shape, std::int64_t max_bytes) {
  std::int64_t total = 1;
  for (const auto extent : shape) {
    if (extent > max_bytes / total)
      throw make_error(Errc::io, "{}: offset 4: the header claims {}, more than the {} bytes allowed", in.name(),
                       contents_text(shape), max_bytes);
    total *= extent;
  }
}

std::vector<std::int64_t> read_shape(Stream& in, const IdxOptions& options) {
  std::vector<std::int64_t> shape;
  for (int d = 0; d < options.dimensions; ++d) {
    const auto at = in.offset();
    std::array<std::uint8_t, 4> raw{};
    if (in.read(raw.data(), raw.size()) < raw.size())
      throw make_error(Errc::io, "{}: offset {}: the file ends within dimension {} of {}", in.name(), in.offset(),
                       d + 1, options.dimensions);
    const std::int64_t extent = (std::int64_t{raw[0]} << 24) | (raw[1] << 16) | (raw[2] << 8) | raw[3];
    if (extent == 0) throw make_error(Errc::io, "{}: offset {}: dimension {} is 0", in.name(), at, d + 1);
    shape.push_back(extent);
  }
  check_total(in, shape, options.max_bytes);
  return shape;
}

std::vector<std::uint8_t> read_values(Stream& in, std::int64_t count) {
  const auto begin = in.offset();
  const auto wanted = static_cast<std::size_t>(count);
  std::vector<std::uint8_t> values;
  while (values.size() < wanted) {
    const auto before = values.size();
    values.resize(std::min(wanted, before + std::max(chunk_bytes, before)));
    const auto n = in.read(values.data() + before, values.size() - before);
    if (n < values.size() - before)
      throw make_error(Errc::io,
                       "{}: offset {}: the file ends here, its header promises {} bytes of values up to offset {}",
                       in.name(), in.offset(), wanted, begin + count);
  }
  std::uint8_t extra = 0;
  if (in.read(&extra, 1) != 0)
    throw make_error(Errc::io, "{}: offset {}: expected the end of the file, found more bytes", in.name(),
                     begin + count);
  return values;
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options) {
  Stream in(path);
  read_magic(in, options.dimensions);
  IdxArray array;
  array.shape = read_shape(in, options);
  std::int64_t count = 1;
  for (const auto extent : array.shape) count *= extent;
  array.values = read_values(in, count);
  return array;
}

}  // namespace ddprun::data
