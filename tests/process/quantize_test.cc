// ddprun-worker quantize: a trained model with weights of 8 bits.
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

struct Row {
  double before = 0, after = 0;
};

// Of the table, without units.
Row row_of(const std::string& table, const std::string& name) {
  std::smatch match;
  REQUIRE(std::regex_search(table, match, std::regex("(?:^|\n)" + name + " +([0-9.]+)[ %ms]+([0-9.]+)")));
  return {std::stod(match[1]), std::stod(match[2])};
}

Words with(const std::string& command, const Words& job, const Words& more = {}) {
  Words words{command};
  words.insert(words.end(), job.begin(), job.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The real digits where they are, else generated ones.
Words digits() {
  const char* data = std::getenv("DDPRUN_TEST_DATA");
  if (data != nullptr) return {"--data.name=mnist", "--data.dir=" + std::string(data) + "/mnist-10k"};
  return {"--data.name=digits"};
}

}  // namespace

TEST_CASE("a quantised MLP has a quarter of the size and its accuracy, and predicts from its file") {
  TempDir dir;
  const std::string mode = GENERATE("dynamic", "static");
  Words job{config("mnist_mlp.cfg"), "--checkpoint.dir=" + (dir / "c").string(), "--train.epochs=2",
            "--quantize.mode=" + mode, "--quantize.file=" + (dir / "q.safetensors").string()};
  for (const auto& word : digits()) job.push_back(word);
  digest_of(run_worker(job));

  auto variables = one_thread;
  variables["ONEDNN_VERBOSE"] = "1";
  const auto result = run_worker(with("quantize", job), variables);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(std::regex_search(result.out, std::regex("matmul,[^\n]*u8[^\n]*s8[^\n]*s32")));
  const auto accuracy = row_of(result.out, "accuracy");
  CHECK(accuracy.before > 80);
  CHECK(accuracy.after >= accuracy.before - 0.5);
  const auto bytes = row_of(result.out, "bytes");
  CHECK(bytes.after < 0.27 * bytes.before);
  CHECK(bytes.after == static_cast<double>(std::filesystem::file_size(dir / "q.safetensors")));

  const auto csv = [&](const Words& more) { return run_worker(with("predict", job, more)).out; };
  const auto quantised = csv({"--predict.quantized=" + (dir / "q.safetensors").string()});
  CHECK(std::count(quantised.begin(), quantised.end(), '\n') > 1000);
  CHECK(quantised != csv({}));

  const auto other = run_worker(with("predict", job,
                                     {"--predict.quantized=" + (dir / "q.safetensors").string(),
                                      mode == "static" ? "--quantize.mode=dynamic" : "--quantize.mode=static"}));
  CHECK(other.code == 2);
  CHECK(other.err.find("input_range") != std::string::npos);
}

TEST_CASE("quantize refuses what it cannot quantise, in one line") {
  TempDir dir;
  const auto error_of = [&](const Words& more) {
    const auto result = run_worker(with("quantize", {config("digits.cfg")}, more));
    CHECK(result.code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    return result.err;
  };
  CHECK(error_of({}).find("quantize.file") != std::string::npos);
  CHECK(error_of({"--quantize.file=q"}).find("checkpoint.dir") != std::string::npos);
  CHECK(error_of({"--quantize.mode=int4"}).find("dynamic, static") != std::string::npos);
}
