#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun::tokenizer {

using Token = std::uint32_t;

// Two tokens next to each other that become one.
struct Merge {
  Token left, right, result;
};

// Byte-pair encoding like GPT-2's (Sennrich et al. 2016, on bytes): a text is split into words (split_words()), a word
// begins as its bytes, and of the pairs in it the one whose merge comes first in the list is merged, until there is
// none. Every text has an encoding, which decodes to its bytes.
//
// Ownership: a value. Threads: const calls may come from any thread.
// Errors: Errc::usage for a vocabulary that lacks a byte, and for merges of tokens that do not exist.
class BytePairs {
 public:
  // tokens: the bytes of each, by number. merges: those in the order in which they were learnt.
  BytePairs(std::vector<std::string> tokens, std::vector<Merge> merges);

  std::int64_t size() const { return std::ssize(tokens_); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Merge>& merges() const { return merges_; }

  std::vector<Token> encode(std::string_view text) const;
  // Returns the bytes of a token. REQUIRES: token < size()
  const std::string& decode(Token token) const { return tokens_[token]; }
  std::string decode(const std::vector<Token>& tokens) const;

 private:
  struct Rank {
    std::uint32_t order;
    Token result;
  };

  std::vector<Token> encode_word(std::string_view word) const;

  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::array<Token, 256> byte_tokens_{};
  std::unordered_map<std::uint64_t, Rank> ranks_;  // by pair
};

// Loads and saves a folder with the files of Hugging Face's tokenizers: vocab.json and merges.txt. Errors: Errc::usage
// naming the file, and the line or the token that is wrong; Errc::io for a folder that cannot be written.
BytePairs load_byte_pairs(const std::filesystem::path& folder);
void save_byte_pairs(const BytePairs& pairs, const std::filesystem::path& folder);
// Parses the contents of these files.
BytePairs parse_byte_pairs(std::string_view vocabulary, std::string_view merges, const std::string& vocabulary_source,
                           const std::string& merges_source);

// Learns merges from a text until there are so many tokens, or until no pair is left. Among the most frequent pairs the
// one of the lowest tokens is merged. The result is that of Hugging Face's trainer with all bytes as its initial
// alphabet. REQUIRES: size >= 256
BytePairs train_byte_pairs(std::string_view text, std::int64_t size);

}  // namespace ddprun::tokenizer
