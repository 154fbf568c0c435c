#include <algorithm>
#include <unordered_map>
#include <utility>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/printable.h"
#include "worker/tokenizer/byte_level.h"
#include "worker/tokenizer/byte_pairs.h"

namespace ddprun::tokenizer {
namespace {

namespace json = boost::json;

constexpr const char* vocabulary_name = "vocab.json";
constexpr const char* merges_name = "merges.txt";

// Returns a token's bytes. One that is no bytes, such as an end of text with a blank in its name, is its characters.
std::string bytes_of(std::string_view text) {
  return from_byte_level(text).value_or(std::string(text));
}

// Returns tokens as they are written, by number.
std::vector<std::string> parse_vocabulary(std::string_view text, const std::string& source) {
  json::error_code status;
  const auto value = json::parse({text.data(), text.size()}, status);
  if (status) throw make_error(Errc::usage, "{}: it is not valid JSON: {}", source, status.message());
  const auto* object = value.if_object();
  if (!object) throw make_error(Errc::usage, "{}: not a JSON object", source);
  std::vector<std::string> tokens(object->size());
  std::vector<bool> taken(tokens.size());
  for (const auto& [key, number] : *object) {
    json::error_code no_number;
    const auto at = number.to_number<std::size_t>(no_number);
    if (no_number || at >= tokens.size() || taken[at])
      throw make_error(Errc::usage, "{}: token {} has no number of its own from 0 to {}", source,
                       printable(std::string_view(key)), tokens.size() - 1);
    taken[at] = true;
    tokens[at] = std::string_view(key);
  }
  return tokens;
}

using Numbers = std::unordered_map<std::string_view, Token>;

Token number_of(const Numbers& numbers, const std::string& text, const std::string& where) {
  const auto found = numbers.find(text);
  if (found == numbers.end())
    throw make_error(Errc::usage, "{}: {} is no token of the vocabulary", where, printable(text));
  return found->second;
}

std::vector<Merge> parse_merges(std::string_view text, const Numbers& numbers, const std::string& source) {
  std::vector<Merge> merges;
  int line_number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const auto where = fmt::format("{}:{}", source, line_number);
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      throw make_error(Errc::usage, "{}: expected two tokens with a blank between them", where);
    const std::string left(line.substr(0, blank)), right(line.substr(blank + 1));
    merges.push_back(
        {number_of(numbers, left, where), number_of(numbers, right, where), number_of(numbers, left + right, where)});
  }
  return merges;
}

std::string read(const std::filesystem::path& file) {
  try {
    return read_whole_file(file);
  } catch (const Error& e) {
    throw make_error(Errc::usage, "{}", e.what());
  }
}

}  // namespace

BytePairs parse_byte_pairs(std::string_view vocabulary, std::string_view merges, const std::string& vocabulary_source,
                           const std::string& merges_source) {
  auto tokens = parse_vocabulary(vocabulary, vocabulary_source);
  Numbers numbers;
  for (std::size_t i = 0; i < tokens.size(); ++i) numbers[tokens[i]] = static_cast<Token>(i);
  auto list = parse_merges(merges, numbers, merges_source);
  std::ranges::transform(tokens, tokens.begin(), [](const std::string& text) { return bytes_of(text); });
  try {
    return {std::move(tokens), std::move(list)};
  } catch (const Error& e) {
    throw make_error(Errc::usage, "{}: {}", vocabulary_source, e.what());
  }
}

BytePairs load_byte_pairs(const std::filesystem::path& folder) {
  const auto vocabulary = folder / vocabulary_name, merges = folder / merges_name;
  const std::string tokens = read(vocabulary);
  return parse_byte_pairs(tokens, read(merges), vocabulary.string(), merges.string());
}

void save_byte_pairs(const BytePairs& pairs, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw make_error(Errc::io, "cannot create folder {}: {}", folder.string(), error.message());
  json::object vocabulary;
  for (const auto& token : pairs.tokens()) vocabulary[to_byte_level(token)] = vocabulary.size();
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right, result] : pairs.merges())
    merges += to_byte_level(pairs.decode(left)) + " " + to_byte_level(pairs.decode(right)) + "\n";
  write_file_atomically(folder / vocabulary_name, json::serialize(vocabulary));
  write_file_atomically(folder / merges_name, merges);
}

}  // namespace ddprun::tokenizer
