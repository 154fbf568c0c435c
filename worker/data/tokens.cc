#include "worker/data/tokens.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/mapped_file.h"
#include "common/rounding.h"

namespace ddprun::data {
namespace {

TokenRange whole(const std::shared_ptr<const MappedFile>& file, const std::filesystem::path& path) {
  return {.bytes = file->bytes(), .owner = file, .name = path.filename().string()};
}

// Returns the bytes of a split of data.dir/input.txt.
TokenRange text_of(const std::filesystem::path& dir, Split split) {
  const auto path = dir / "input.txt";
  TokenRange range = whole(std::make_shared<const MappedFile>(path), path);
  const std::size_t boundary = range.bytes.size() * 9 / 10;
  range.bytes = split == Split::test ? range.bytes.subspan(boundary) : range.bytes.first(boundary);
  range.name += split == Split::test ? " (its last tenth)" : " (its first nine tenths)";
  return range;
}

std::string_view characters(const TokenRange& range) {
  return {reinterpret_cast<const char*>(range.bytes.data()), range.bytes.size()};
}

// The format that a shard's file declares.
struct ShardFormat {
  int token_bytes = 2;
  std::size_t header_bytes = 0;
};

// The first numbers of a header of llm.c: 256 integers of 32 bits.
struct LlmcHeader {
  std::int32_t magic, version, tokens;
};

std::optional<ShardFormat> llmc_format(const LlmcHeader& header) {
  constexpr std::size_t header_bytes = 1024;
  if (header.magic == 20240520 && header.version == 1) return ShardFormat{2, header_bytes};
  if (header.magic == 20240801 && header.version == 7) return ShardFormat{4, header_bytes};
  return std::nullopt;
}

ShardFormat format_of(std::span<const std::byte> file, const std::filesystem::path& path) {
  LlmcHeader header{};
  if (file.size() >= sizeof header) std::memcpy(&header, file.data(), sizeof header);
  const auto format = llmc_format(header);
  if (!format) {
    if (file.size() % 2 == 0) return {};
    throw make_error(Errc::usage, "{} has {} bytes, which is no number of 16-bit tokens", path.string(), file.size());
  }
  const std::size_t expected = format->header_bytes + static_cast<std::size_t>(std::max(header.tokens, 0)) *
                                                          static_cast<std::size_t>(format->token_bytes);
  if (file.size() == expected) return *format;
  throw make_error(Errc::usage, "{}: its header says {} tokens, which take {} bytes, and the file has {}",
                   path.string(), header.tokens, expected, file.size());
}

void store(std::span<std::byte> row, std::int64_t at, std::int64_t token) {
  std::memcpy(row.data() + static_cast<std::size_t>(at) * sizeof token, &token, sizeof token);
}

std::vector<std::filesystem::path> shards_in(const std::filesystem::path& dir, const std::string& prefix) {
  std::vector<std::filesystem::path> shards;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".bin")) shards.push_back(entry.path());
  }
  if (error) throw make_error(Errc::usage, "cannot read the folder {}: {}", dir.string(), error.message());
  if (shards.empty()) throw make_error(Errc::usage, "{}: there is no {}*.bin", dir.string(), prefix);
  std::sort(shards.begin(), shards.end());
  return shards;
}

}  // namespace

TokenDataset::TokenDataset(std::vector<TokenRange> ranges, const TokenOptions& options)
    : ranges_(std::move(ranges)), options_(options), starts_{0} {
  for (const TokenRange& range : ranges_) starts_.push_back(starts_.back() + samples_in(range));
  if (size() == 0) {
    const auto named = ranges_.empty() || ranges_.front().name.empty() ? "the text" : ranges_.front().name;
    throw make_error(Errc::usage, "{} is too short: a sample takes {} tokens and one more", named, options_.context);
  }
  layout_ = token_layout(options_.context, options_.vocabulary);
}

std::int64_t TokenDataset::samples_in(const TokenRange& range) const {
  const std::int64_t targets = tokens_in(range) - 1;
  if (targets < 1) return 0;
  return options_.keep_rest ? divide_up(targets, options_.context) : targets / options_.context;
}

std::int64_t TokenDataset::tokens_in(const TokenRange& range) const {
  return std::ssize(range.bytes) / options_.token_bytes;
}

std::int64_t TokenDataset::token(const TokenRange& range, std::int64_t position) const {
  const auto* from = range.bytes.data() + position * options_.token_bytes;
  std::uint32_t value = 0;
  std::memcpy(&value, from, static_cast<std::size_t>(options_.token_bytes));  // little-endian, like this machine
  if (value < static_cast<std::uint64_t>(options_.vocabulary)) return value;
  throw make_error(Errc::usage, "{}token {} at position {} is not within the vocabulary of {}",
                   range.name.empty() ? "" : range.name + ": ", value, position, options_.vocabulary);
}

void TokenDataset::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), index);
  const auto number = static_cast<std::size_t>(next - starts_.begin()) - 1;
  const TokenRange& range = ranges_[number];
  const std::int64_t begin = (index - starts_[number]) * options_.context;
  const std::int64_t end = tokens_in(range);
  for (std::int64_t i = 0; i < options_.context; ++i) {
    const std::int64_t position = begin + i;
    const bool inside = position + 1 < end;
    store(input, i, inside ? token(range, position) : 0);
    store(target, i, inside ? token(range, position + 1) : ignored_target);
  }
}

std::vector<Source> TokenDataset::sources() const {
  std::vector<Source> sources;
  for (const auto& range : ranges_) sources.push_back({.name = range.name, .bytes = range.bytes});
  return sources;
}

SampleLayout token_layout(std::int64_t context, std::int64_t vocabulary) {
  return {.input_shape = {context},
          .input_dtype = DType::int64,
          .target_shape = {context},
          .target_dtype = DType::int64,
          .vocabulary = vocabulary};
}

std::unique_ptr<Dataset> load_text(const std::filesystem::path& dir, Split split, std::int64_t context) {
  return std::make_unique<TokenDataset>(std::vector{text_of(dir, split)},
                                        TokenOptions{.context = context, .keep_rest = split == Split::test});
}

std::unique_ptr<Dataset> load_text(const std::filesystem::path& dir, Split split, std::int64_t context,
                                   const tokenizer::BytePairs& pairs) {
  const auto text = text_of(dir, split);
  const auto tokens = std::make_shared<const std::vector<tokenizer::Token>>(pairs.encode(characters(text)));
  return std::make_unique<TokenDataset>(
      std::vector{TokenRange{
          .bytes = std::as_bytes(std::span(*tokens)), .owner = tokens, .name = "the tokens of " + text.name}},
      TokenOptions{.context = context,
                   .vocabulary = pairs.size(),
                   .token_bytes = sizeof(tokenizer::Token),
                   .keep_rest = split == Split::test});
}

std::string training_text(const std::filesystem::path& dir) {
  return std::string(characters(text_of(dir, Split::train)));
}

std::unique_ptr<Dataset> load_token_shards(const std::filesystem::path& dir, Split split, std::int64_t context,
                                           std::int64_t vocabulary) {
  std::vector<TokenRange> ranges;
  int token_bytes = 0;  // that of the shards so far
  for (const auto& path : shards_in(dir, split == Split::test ? "val" : "train")) {
    const auto file = std::make_shared<const MappedFile>(path);
    const ShardFormat format = format_of(file->bytes(), path);
    if (token_bytes != 0 && token_bytes != format.token_bytes)
      throw make_error(Errc::usage, "{} has tokens of {} bits, the shards before it of {}", path.string(),
                       8 * format.token_bytes, 8 * token_bytes);
    token_bytes = format.token_bytes;
    TokenRange range = whole(file, path);
    range.bytes = range.bytes.subspan(format.header_bytes);
    ranges.push_back(std::move(range));
  }
  return std::make_unique<TokenDataset>(
      std::move(ranges),
      TokenOptions{
          .context = context, .vocabulary = vocabulary, .token_bytes = token_bytes, .keep_rest = split == Split::test});
}

}  // namespace ddprun::data
