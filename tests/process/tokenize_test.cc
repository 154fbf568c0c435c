// ddprun-worker tokenize, and a GPT on the tokens that it makes.
#include <fstream>

#include "common/atomic_file.h"
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// A text in which few words repeat, with letters beyond ASCII.
void write_text(const TempDir& dir) {
  static constexpr const char* words[] = {"never", "dünn", "wird", "the", "thing", "thinking", "Привет", "42", "don't"};
  std::ofstream out(dir / "input.txt");
  std::uint32_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    state = state * 1664525 + 1013904223;
    out << words[(state >> 16) % std::size(words)] << (i % 12 == 11 ? ".\n" : " ");
  }
}

Words job(const TempDir& dir, const std::string& command = "") {
  Words words;
  if (!command.empty()) words.push_back(command);
  for (const auto& word :
       {config("gpt_nano.cfg").string(), "--data.dir=" + dir.path().string(),
        "--data.tokenizer=" + (dir / "bpe").string(), "--checkpoint.dir=" + (dir / "checkpoints").string(),
        std::string("--data.context=16"), std::string("--model.width=16"), std::string("--model.layers=1"),
        std::string("--train.max_steps=20")})
    words.push_back(word);
  if (command == "tokenize") words.emplace_back("--tokenize.vocabulary=300");
  if (command == "generate") words.emplace_back("--generate.tokens=30");
  return words;
}

}  // namespace

TEST_CASE("a GPT learns and continues a text in the tokens that tokenize has made of it") {
  const TempDir dir;
  write_text(dir);
  const auto made = run_worker(job(dir, "tokenize"));
  CHECK(made.code == 0);
  CHECK_THAT(made.out, Catch::Contains("bpe: 300 tokens; "));
  const auto merges = read_whole_file(dir / "bpe/merges.txt");
  CHECK(std::count(merges.begin(), merges.end(), '\n') == 1 + 300 - 256);
  CHECK_THAT(merges, Catch::Contains("\u0120 th\n"));

  Words training{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  for (const auto& word : job(dir)) training.push_back(word);
  const auto digest = digest_of(run_job(training));
  std::filesystem::remove_all(dir / "checkpoints");
  CHECK(digest_of(run_job(training)) == digest);
  auto prompted = job(dir, "generate");
  prompted.push_back("--generate.prompt=the dünn");
  const auto text = run_worker(prompted);
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("the dünn"));
  CHECK(text.out.size() > std::string("the dünn\n").size() + 30);  // a token has more than a byte
  CHECK(run_worker(prompted).out == text.out);
}

TEST_CASE("a GPT that has learnt from files of tokens continues a text in their encoding") {
  const TempDir dir;
  write_text(dir);
  REQUIRE(run_worker(job(dir, "tokenize")).code == 0);
  for (const char* name : {"train.bin", "val.bin"}) {
    std::ofstream shard(dir / name, std::ios::binary);
    for (std::uint16_t i = 0; i < 400; ++i) shard.put(static_cast<char>(i * 7 % 200 + 50)).put(0);
  }
  const Words tokens{"--data.name=tokens", "--data.vocabulary=300"};
  auto training = job(dir), generating = job(dir, "generate");
  for (auto* words : {&training, &generating}) words->insert(words->end(), tokens.begin(), tokens.end());
  digest_of(run_worker(training));
  generating.push_back("--generate.prompt=the");
  const auto text = run_worker(generating);
  INFO(text.err);
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("the"));
  CHECK(text.out.size() > std::string("the\n").size() + 20);
  std::erase_if(generating, [](const std::string& word) { return word.starts_with("--data.tokenizer"); });
  const auto refused = run_worker(generating);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains("data.name = tokens: generate needs data.tokenizer"));
}

TEST_CASE("a tokenizer that is not there or not whole, and data that is no text, are errors") {
  const TempDir dir;
  write_text(dir);
  const auto error_of = [&](const Words& words) {
    const auto result = run_worker(words);
    CHECK(result.code == 2);
    return result.err;
  };
  const auto key = "data.tokenizer = " + (dir / "bpe").string() + ": ";
  CHECK_THAT(error_of(job(dir)), Catch::Contains(key) && Catch::Contains("vocab.json"));
  CHECK(run_worker(job(dir, "tokenize")).code == 0);
  std::ofstream(dir / "bpe/merges.txt", std::ios::app) << "a twice\n";
  CHECK_THAT(error_of(job(dir)), Catch::Contains(key) && Catch::Contains("merges.txt:46: twice is no token"));
  CHECK_THAT(error_of({config("digits.cfg"), "--data.tokenizer=" + (dir / "bpe").string()}),
             Catch::Contains("data.tokenizer = ") && Catch::Contains("data.name = text"));
  CHECK_THAT(error_of({"tokenize", config("digits.cfg")}), Catch::Contains("it needs data.name = text, not digits"));
  CHECK_THAT(error_of({"tokenize", config("gpt_nano.cfg"), "--data.dir=" + dir.path().string()}),
             Catch::Contains("tokenize needs data.tokenizer"));
}
