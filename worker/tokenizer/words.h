#pragma once

#include <string_view>
#include <vector>

namespace ddprun::tokenizer {

// Returns a text's words, in order and without a gap, by GPT-2's pattern (Radford et al. 2019): a word has the blank
// before it,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// with Unicode's letters, numbers and white space. A byte that is not part of valid UTF-8 counts as a sign.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace ddprun::tokenizer
