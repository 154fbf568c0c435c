#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "worker/tokenizer/byte_level.h"
#include "worker/tokenizer/byte_pairs.h"
#include "worker/tokenizer/words.h"

namespace ddprun::tokenizer {
namespace {

using Pair = std::pair<Token, Token>;

// A word of the text, as tokens, with the number of times that it occurs.
struct Word {
  std::vector<Token> tokens;
  std::int64_t count;
};

struct Candidate {
  std::int64_t count;
  Pair pair;

  // The most frequent pair comes first, among several that of the lowest tokens.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Trainer {
 public:
  explicit Trainer(std::string_view text) {
    for (const unsigned char byte : bytes_in_order()) add_token(std::string(1, static_cast<char>(byte)));
    std::map<std::string_view, std::int64_t> counts;
    for (const auto word : split_words(text)) ++counts[word];
    for (const auto& [word, count] : counts) add_word(word, count);
    for (const auto& [pair, places] : places_) queue_.push({counts_[pair], pair});
  }

  BytePairs train(std::int64_t size) && {
    while (std::ssize(tokens_) < size && !queue_.empty()) {
      const auto [count, pair] = queue_.top();
      queue_.pop();
      if (count != counts_[pair]) {  // true if merges of other pairs have changed it
        if (counts_[pair] > 0) queue_.push({counts_[pair], pair});
        continue;
      }
      merge(pair);
    }
    return {std::move(tokens_), std::move(merges_)};
  }

 private:
  Token add_token(std::string bytes) {
    const auto [place, is_new] = numbers_.try_emplace(bytes, static_cast<Token>(tokens_.size()));
    if (is_new) tokens_.push_back(std::move(bytes));
    return place->second;
  }

  void add_word(std::string_view text, std::int64_t count) {
    Word word{.tokens = {}, .count = count};
    for (const char byte : text) word.tokens.push_back(numbers_.at(std::string(1, byte)));
    for (std::size_t i = 1; i < word.tokens.size(); ++i) {
      const Pair pair{word.tokens[i - 1], word.tokens[i]};
      counts_[pair] += count;
      places_[pair].insert(words_.size());
    }
    words_.push_back(std::move(word));
  }

  void merge(const Pair& pair) {
    const Token result = add_token(tokens_[pair.first] + tokens_[pair.second]);
    merges_.push_back({pair.first, pair.second, result});
    std::set<Pair> grown;
    const auto places = std::move(places_[pair]);
    places_.erase(pair);
    for (const std::size_t word : places) merge_in(word, pair, result, grown);
    counts_[pair] = 0;
    for (const Pair& each : grown)
      if (counts_[each] > 0) queue_.push({counts_[each], each});
  }

  // grown: pairs that occur more often now
  void merge_in(std::size_t number, const Pair& pair, Token result, std::set<Pair>& grown) {
    Word& word = words_[number];
    const auto change = [&](Token left, Token right, std::int64_t by) {
      counts_[{left, right}] += by;
      if (by < 0) return;
      places_[{left, right}].insert(number);
      grown.insert({left, right});
    };
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < word.tokens.size(); ++i) {
      if (i + 1 == word.tokens.size() || Pair{word.tokens[i], word.tokens[i + 1]} != pair) {
        tokens.push_back(word.tokens[i]);
        continue;
      }
      if (!tokens.empty()) {
        change(tokens.back(), pair.first, -word.count);
        change(tokens.back(), result, word.count);
      }
      if (i + 2 < word.tokens.size()) {
        change(pair.second, word.tokens[i + 2], -word.count);
        change(result, word.tokens[i + 2], word.count);
      }
      tokens.push_back(result);
      ++i;
    }
    word.tokens = std::move(tokens);
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, Token> numbers_;
  std::vector<Merge> merges_;
  std::vector<Word> words_;
  std::map<Pair, std::int64_t> counts_;
  std::map<Pair, std::set<std::size_t>> places_;  // words in which a pair occurs, or did
  std::priority_queue<Candidate> queue_;
};

}  // namespace

BytePairs train_byte_pairs(std::string_view text, std::int64_t size) {
  return Trainer(text).train(size);
}

}  // namespace ddprun::tokenizer
