#include "worker/data/tokens.h"

#include <cstring>
#include <fstream>
#include <numeric>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::data;
using testing::TempDir;

namespace {

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Returns that many 16-bit tokens, counting up from first.
std::string shard(std::uint16_t first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(first + i);
    bytes += static_cast<char>(token & 0xff);
    bytes += static_cast<char>(token >> 8);
  }
  return bytes;
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> numbers(256);
  numbers[0] = magic;
  numbers[1] = version;
  numbers[2] = tokens;
  return {reinterpret_cast<const char*>(numbers.data()), sizeof(std::int32_t) * numbers.size()};
}

// Returns 32-bit tokens, which begin at 100,000.
std::string wide_shard(std::uint32_t count) {
  std::string bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t token = 100'000 + i;
    bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  return bytes;
}

struct Sample {
  std::vector<std::int64_t> input, target;
};
Sample sample(const Dataset& dataset, std::int64_t index) {
  const auto context = static_cast<std::size_t>(dataset.layout().input_shape[0]);
  Sample result{std::vector<std::int64_t>(context), std::vector<std::int64_t>(context)};
  dataset.read(index, std::as_writable_bytes(std::span(result.input)),
               std::as_writable_bytes(std::span(result.target)));
  return result;
}

}  // namespace

TEST_CASE("a text is bytes, nine tenths to learn from and the rest to test") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  write(dir / "input.txt", text);
  const auto train = load_text(dir.path(), Split::train, 4);
  CHECK(train->layout().vocabulary == 256);
  CHECK(train->size() == 22);  // 89 targets, of which 88 fill samples
  CHECK(sample(*train, 0).input == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK(sample(*train, 0).target == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(sample(*train, 21).target.back() == 88);
  // 10 bytes are 9 targets: each counts once, the rest of the last sample is ignored.
  const auto test = load_text(dir.path(), Split::test, 4);
  REQUIRE(test->size() == 3);
  CHECK(sample(*test, 0).input.front() == 90);
  CHECK(sample(*test, 2).input == std::vector<std::int64_t>{98, 0, 0, 0});
  CHECK(sample(*test, 2).target == std::vector<std::int64_t>{99, ignored_target, ignored_target, ignored_target});
}

TEST_CASE("token shards follow each other, and no sample crosses from one to the next") {
  const TempDir dir;
  write(dir / "train_1.bin", shard(1000, 9));
  write(dir / "train_0.bin", shard(0, 6));
  write(dir / "val.bin", shard(500, 3));
  const auto train = load_token_shards(dir.path(), Split::train, 4, 2000);
  REQUIRE(train->size() == 3);
  CHECK(sample(*train, 0).target == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(sample(*train, 1).input == std::vector<std::int64_t>{1000, 1001, 1002, 1003});
  CHECK(sample(*train, 2).target == std::vector<std::int64_t>{1005, 1006, 1007, 1008});
  CHECK(load_token_shards(dir.path(), Split::test, 4, 2000)->size() == 1);
}

TEST_CASE("a shard larger than a sample's reach is read where it is needed alone") {
  const TempDir dir;
  write(dir / "train.bin", "");
  // The file is sparse and has 8 GiB: a reader that read it whole would fail.
  std::filesystem::resize_file(dir / "train.bin", std::uintmax_t{8} << 30);
  write(dir / "val.bin", shard(0, 9));
  const auto train = load_token_shards(dir.path(), Split::train, 1024, 10);
  CHECK(train->size() == (std::int64_t{4} << 20) - 1);
  CHECK(sample(*train, train->size() - 1).input == std::vector<std::int64_t>(1024));
}

TEST_CASE("a text in byte pairs has the same tenths, and targets that decode to them") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "to be or not ";
  write(dir / "input.txt", text);
  CHECK(training_text(dir.path()) == text.substr(0, text.size() * 9 / 10));
  const auto pairs = tokenizer::train_byte_pairs(training_text(dir.path()), 262);
  const auto test = load_text(dir.path(), Split::test, 5, pairs);
  CHECK(test->layout().vocabulary == 262);
  std::string decoded;
  for (std::int64_t i = 0; i < test->size(); ++i)
    for (const auto token : sample(*test, i).target)
      if (token != ignored_target) decoded += pairs.decode(static_cast<tokenizer::Token>(token));
  const std::string tested = text.substr(text.size() * 9 / 10);
  CHECK(decoded.size() < tested.size());
  CHECK_THAT(tested, Catch::EndsWith(decoded));
  CHECK(pairs.decode(static_cast<tokenizer::Token>(sample(*test, 0).input[0])) + decoded == tested);
}

TEST_CASE("the header of a shard of llm.c says the size of its tokens and is none of them") {
  const TempDir dir;
  write(dir / "train.bin", header(20240520, 1, 9) + shard(1000, 9));
  auto train = load_token_shards(dir.path(), Split::train, 4, 2000);
  CHECK(train->size() == 2);
  CHECK(sample(*train, 0).input == std::vector<std::int64_t>{1000, 1001, 1002, 1003});
  CHECK(sample(*train, 1).target == std::vector<std::int64_t>{1005, 1006, 1007, 1008});

  write(dir / "train.bin", header(20240801, 7, 5) + wide_shard(5));
  train = load_token_shards(dir.path(), Split::train, 4, 128'256);
  CHECK(train->size() == 1);
  CHECK(sample(*train, 0).target == std::vector<std::int64_t>{100'001, 100'002, 100'003, 100'004});

  write(dir / "train_2.bin", shard(0, 9));
  CHECK_THROWS_WITH(
      load_token_shards(dir.path(), Split::train, 4, 128'256),
      Catch::Contains("train_2.bin has tokens of 16 bits") && Catch::Contains("the shards before it of 32"));
  std::filesystem::remove(dir / "train_2.bin");
  write(dir / "train.bin", header(20240520, 1, 10) + shard(1000, 9));
  CHECK_THROWS_WITH(load_token_shards(dir.path(), Split::train, 4, 2000),
                    Catch::Contains("train.bin: its header says 10 tokens, which take 1044 bytes") &&
                        Catch::Contains("the file has 1042"));
}

TEST_CASE("what is no text or no tokens is one line that names the file") {
  const TempDir dir;
  CHECK_THROWS_WITH(load_text(dir.path(), Split::train, 4), Catch::Contains("input.txt"));
  write(dir / "input.txt", "short");
  CHECK_THROWS_WITH(load_text(dir.path(), Split::train, 4),
                    Catch::Contains("input.txt (its first nine tenths) is too short"));
  CHECK_THROWS_WITH(load_token_shards(dir.path(), Split::train, 4, 10), Catch::Contains("train*.bin"));
  write(dir / "train.bin", shard(0, 20) + "x");
  CHECK_THROWS_WITH(load_token_shards(dir.path(), Split::train, 4, 10), Catch::Contains("41 bytes"));
  write(dir / "train.bin", shard(0, 20));
  const auto train = load_token_shards(dir.path(), Split::train, 4, 10);
  CHECK_THROWS_WITH(sample(*train, 2),
                    Catch::Contains("train.bin: token 10 at position 10") && Catch::Contains("of 10"));
}
