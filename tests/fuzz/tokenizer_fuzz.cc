// Byte-pair encoding of arbitrary bytes, and its files with arbitrary content: nothing is lost, and refused content
// gives an error that names the file.
#include <array>

#include "common/error.h"
#include "worker/tokenizer/byte_pairs.h"
#include "worker/tokenizer/words.h"
#include "tests/fuzz/memory_file.h"

using namespace ddprun;
using namespace ddprun::fuzz;

namespace {

void encode(std::string_view text) {
  std::string joined;
  for (const auto word : tokenizer::split_words(text)) {
    require(!word.empty());
    joined += word;
  }
  require(joined == text);
  const auto pairs = tokenizer::train_byte_pairs(text, 300);
  require(pairs.decode(pairs.encode(text)) == text);
}

// The input is the vocabulary, a byte 0, the merges.
void read_files(std::string_view text) {
  const auto end = std::min(text.find('\0'), text.size());
  const auto merges = text.substr(std::min(end + 1, text.size()));
  const auto pairs = tokenizer::parse_byte_pairs(text.substr(0, end), merges, "vocab.json", "merges.txt");
  require(pairs.size() >= 256);
  for (const auto token : pairs.encode(merges)) require(token < static_cast<std::uint64_t>(pairs.size()));
}

}  // namespace

// The first byte selects the target.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto text = text_of({data + 1, size - 1});
  try {
    data[0] % 2 == 0 ? encode(text) : read_files(text);
  } catch (const Error& e) {
    require(e.code() == Errc::usage && std::string_view(e.what()).size() > 10);
  }
  return 0;
}
