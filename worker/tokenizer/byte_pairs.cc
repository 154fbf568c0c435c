#include "worker/tokenizer/byte_pairs.h"

#include <array>
#include <queue>
#include <utility>

#include "common/error.h"
#include "worker/tokenizer/words.h"

namespace ddprun::tokenizer {
namespace {

constexpr std::uint64_t key_of(Token left, Token right) {
  return std::uint64_t{left} << 32 | right;
}

// A word's tokens as a list, in which a token that is merged into the one before it is left out.
struct Symbol {
  Token token;
  std::int64_t before, after;  // -1 if none
};

// A merge that is possible, or was when it was found.
struct PossibleMerge {
  std::uint32_t order;
  std::int64_t left;
  std::uint64_t pair;

  // The first merge of the list comes first, at the first place.
  friend bool operator<(const PossibleMerge& a, const PossibleMerge& b) {
    return a.order != b.order ? a.order > b.order : a.left > b.left;
  }
};

}  // namespace

BytePairs::BytePairs(std::vector<std::string> tokens, std::vector<Merge> merges)
    : tokens_(std::move(tokens)), merges_(std::move(merges)) {
  std::array<bool, 256> found{};
  for (std::size_t token = 0; token < tokens_.size(); ++token) {
    if (tokens_[token].size() != 1) continue;
    const auto byte = static_cast<unsigned char>(tokens_[token][0]);
    found[byte] = true;
    byte_tokens_[byte] = static_cast<Token>(token);
  }
  for (std::size_t byte = 0; byte < found.size(); ++byte)
    if (!found[byte]) throw make_error(Errc::usage, "the vocabulary has no token for the byte {}", byte);
  for (const auto& [left, right, result] : merges_) {
    if (left >= tokens_.size() || right >= tokens_.size() || result >= tokens_.size())
      throw make_error(Errc::usage, "a merge of tokens {} and {} into {}: there are {}", left, right, result,
                       tokens_.size());
    ranks_.try_emplace(key_of(left, right), Rank{static_cast<std::uint32_t>(ranks_.size()), result});
  }
}

std::vector<Token> BytePairs::encode_word(std::string_view word) const {
  std::vector<Symbol> symbols;
  const auto count = std::ssize(word);
  for (std::int64_t i = 0; i < count; ++i)
    symbols.push_back({byte_tokens_[static_cast<unsigned char>(word[static_cast<std::size_t>(i)])], i - 1,
                       i + 1 < count ? i + 1 : -1});
  const auto at = [&](std::int64_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<PossibleMerge> candidates;
  const auto consider = [&](std::int64_t left) {
    if (left < 0 || at(left).after < 0) return;
    const auto pair = key_of(at(left).token, at(at(left).after).token);
    if (const auto found = ranks_.find(pair); found != ranks_.end()) candidates.push({found->second.order, left, pair});
  };
  std::vector<bool> merged(symbols.size());  // true for one merged into the one before it
  for (std::int64_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const auto [order, left, pair] = candidates.top();
    candidates.pop();
    if (merged[static_cast<std::size_t>(left)] || at(left).after < 0) continue;
    const std::int64_t right = at(left).after;
    if (key_of(at(left).token, at(right).token) != pair) continue;  // changed since
    at(left).token = ranks_.at(pair).result;
    at(left).after = at(right).after;
    if (at(right).after >= 0) at(at(right).after).before = left;
    merged[static_cast<std::size_t>(right)] = true;
    consider(at(left).before);
    consider(left);
  }
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i >= 0 && i < count; i = at(i).after) tokens.push_back(at(i).token);
  return tokens;
}

std::vector<Token> BytePairs::encode(std::string_view text) const {
  std::unordered_map<std::string_view, std::vector<Token>> known;  // most words of a text repeat
  std::vector<Token> tokens;
  for (const auto word : split_words(text)) {
    auto [place, is_new] = known.try_emplace(word);
    if (is_new) place->second = encode_word(word);
    tokens.insert(tokens.end(), place->second.begin(), place->second.end());
  }
  return tokens;
}

std::string BytePairs::decode(const std::vector<Token>& tokens) const {
  std::string text;
  for (const Token token : tokens) text += decode(token);
  return text;
}

}  // namespace ddprun::tokenizer
