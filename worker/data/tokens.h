#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/tokenizer/byte_pairs.h"

namespace ddprun::data {

// Tokens in memory or in a mapped file: unsigned little-endian numbers of one size, one after the other.
struct TokenRange {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes alive
  std::string name = {};              // that of their file, for errors
};

struct TokenOptions {
  std::int64_t context = 128;     // tokens of a sample
  std::int64_t vocabulary = 256;  // all tokens are below this
  int token_bytes = 1;            // 1, 2 or 4
  // True: the tokens that do not fill a last sample make a shorter one, its other targets ignored, so that each token
  // counts once: for evaluation. False: they are left out.
  bool keep_rest = false;
};

// The value of a target that counts for nothing.
inline constexpr std::int64_t ignored_target = -100;

// Text whose next token is to be predicted: sample i of a range is the tokens [i context, (i + 1) context), its target
// the tokens one further. Every token but the first of each range is a target once. A mapped file may be larger than
// memory; no sample crosses from one range to the next.
//
// Errors: the constructor throws Errc::usage for ranges in which no sample fits; read() throws Errc::usage for a token
// outside of the vocabulary, naming its position.
class TokenDataset : public Dataset {
 public:
  TokenDataset(std::vector<TokenRange> ranges, const TokenOptions& options);

  std::int64_t size() const override { return starts_.back(); }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;
  std::vector<Source> sources() const override;

 private:
  std::int64_t tokens_in(const TokenRange& range) const;
  std::int64_t samples_in(const TokenRange& range) const;
  std::int64_t token(const TokenRange& range, std::int64_t position) const;

  const std::vector<TokenRange> ranges_;
  const TokenOptions options_;
  std::vector<std::int64_t> starts_;  // the first sample of each range, and the number of samples
  SampleLayout layout_;
};

// The layout of the samples of a TokenDataset.
SampleLayout token_layout(std::int64_t context, std::int64_t vocabulary);

// Loads data.dir/input.txt as bytes: the first nine tenths for training, the rest for tests. Throws Errc::usage or
// Errc::io, naming the file.
std::unique_ptr<Dataset> load_text(const std::filesystem::path& dir, Split split, std::int64_t context);
// Loads the same parts as tokens of byte-pair encoding, kept in memory.
std::unique_ptr<Dataset> load_text(const std::filesystem::path& dir, Split split, std::int64_t context,
                                   const tokenizer::BytePairs& pairs);
// Returns the part for training, as text. Throws what load_text() throws.
std::string training_text(const std::filesystem::path& dir);

// Loads the shards train*.bin or val*.bin of a folder, ordered by name: 16-bit tokens as nanoGPT writes them, or
// llm.c's files (dev/data/data_common.py), whose header of 1,024 bytes says whether tokens have 16 bits (GPT-2) or 32
// (Llama 3). Throws Errc::usage for a damaged file, naming it, and for shards of different sizes of tokens.
std::unique_ptr<Dataset> load_token_shards(const std::filesystem::path& dir, Split split, std::int64_t context,
                                           std::int64_t vocabulary);

}  // namespace ddprun::data
