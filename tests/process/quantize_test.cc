// ddprun-worker quantize: a trained model with weights of 8 bits.
#include <cstring>
#include <map>

#include <boost/json.hpp>

#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

struct Row {
  double before = 0, after = 0;
};

// Returns a row of the table, without units.
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

// A tensor's entry in the header of a safetensors file.
struct Entry {
  std::string dtype;
  std::int64_t elements = 1, dimensions = 0;
};

std::map<std::string, Entry> entries_of(const std::filesystem::path& file) {
  const std::string text = read_whole_file(file);
  std::uint64_t size = 0;
  REQUIRE(text.size() > sizeof(size));
  std::memcpy(&size, text.data(), sizeof(size));
  std::map<std::string, Entry> entries;
  const auto header = boost::json::parse(text.substr(sizeof(size), size));
  for (const auto& [name, value] : header.as_object()) {
    if (name == "__metadata__") continue;
    Entry entry{.dtype = std::string(value.at("dtype").as_string())};
    for (const auto& each : value.at("shape").as_array()) {
      entry.elements *= each.to_number<std::int64_t>();
      ++entry.dimensions;
    }
    entries.emplace(name, entry);
  }
  return entries;
}

// Each weight of a layer takes a byte where it took four, and nothing else grows with it.
void check_a_quarter(const std::filesystem::path& model, const std::filesystem::path& quantized) {
  const auto entries = entries_of(quantized);
  std::int64_t weights = 0, rest = 0;
  for (const auto& [name, entry] : entries) (entry.dtype == "I8" ? weights : rest) += entry.elements;
  std::int64_t expected = 0, outputs = 0;
  for (const auto& [name, entry] : entries_of(model)) {
    INFO(name);
    if (entry.dimensions < 2) {
      outputs += entry.elements;
      continue;
    }
    REQUIRE(entries.contains(name));
    CHECK(entries.at(name).dtype == "I8");
    expected += entry.elements;
  }
  CHECK(weights == expected);
  CHECK(rest <= 4 * outputs);  // scales and sums of the outputs, beside what the model has for them
}

std::filesystem::path newest_model(const std::filesystem::path& checkpoints) {
  std::filesystem::path newest;
  for (const auto& step : std::filesystem::directory_iterator(checkpoints)) newest = std::max(newest, step.path());
  return newest / "model.safetensors";
}

// Returns the real digits where they exist, otherwise generated ones.
Words digits() {
  const char* data = std::getenv("DDPRUN_TEST_DATA");
  if (data != nullptr) return {"--data.name=mnist", "--data.dir=" + std::string(data) + "/mnist-10k"};
  return {"--data.name=digits"};
}

}  // namespace

TEST_CASE("a quantized MLP has a quarter of the size and its accuracy, and predicts from its file") {
  TempDir dir;
  const std::string mode = GENERATE("dynamic", "static");
  Words job{config("mnist_mlp.cfg"), "--checkpoint.dir=" + (dir / "c").string(), "--train.epochs=2"};
  for (const auto& word : digits()) job.push_back(word);
  digest_of(run_worker(job));

  auto variables = one_thread;
  variables["ONEDNN_VERBOSE"] = "1";
  const std::string file = (dir / "q.safetensors").string();
  const auto result =
      run_worker(with("quantize", job, {"--quantize.mode=" + mode, "--quantize.file=" + file}), variables);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(std::regex_search(result.out, std::regex("matmul,[^\n]*u8[^\n]*s8[^\n]*s32")));
  const auto accuracy = row_of(result.out, "accuracy");
  CHECK(accuracy.before > 80);
  CHECK(accuracy.after >= accuracy.before - 0.3);
  check_a_quarter(newest_model(dir / "c"), file);
  const auto bytes = row_of(result.out, "bytes");
  CHECK(bytes.after < 0.26 * bytes.before);
  CHECK(bytes.after == static_cast<double>(std::filesystem::file_size(file)));

  const auto csv = [&](const Words& more) { return run_worker(with("predict", job, more)).out; };
  const auto quantized = csv({"--quantize.mode=" + mode, "--predict.quantized=" + file});
  CHECK(std::count(quantized.begin(), quantized.end(), '\n') > 1000);
  CHECK(quantized != csv({}));

  const auto other = run_worker(
      with("predict", job,
           {"--predict.quantized=" + file, mode == "static" ? "--quantize.mode=dynamic" : "--quantize.mode=static"}));
  CHECK(other.code == 2);
  CHECK(other.err.find("input_range") != std::string::npos);
}

TEST_CASE("convolutional networks are quantized, in int8 convolutions, and keep their accuracy") {
  const char* cfg = GENERATE("mnist.cfg", "conv_net.cfg", "sequential_cnn.cfg", "cnn_bn.cfg");
  TempDir dir;
  Words job{config(cfg), "--checkpoint.dir=" + (dir / "c").string(), "--train.epochs=2"};
  for (const auto& word : digits()) job.push_back(word);
  digest_of(run_worker(job));
  auto variables = one_thread;
  variables["ONEDNN_VERBOSE"] = "1";
  const Words quantize{"--quantize.mode=static", "--quantize.samples=500",
                       "--quantize.file=" + (dir / "q.safetensors").string()};
  const auto result = run_worker(with("quantize", job, quantize), variables);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  CHECK(std::regex_search(result.out, std::regex("convolution,[^\n]*src[_:]u8[^\n]*wei[_:]s8[^\n]*dst[_:]s32")));
  const auto accuracy = row_of(result.out, "accuracy");
  CHECK(accuracy.before > 80);
  CHECK(accuracy.after >= accuracy.before - 0.3);
  check_a_quarter(newest_model(dir / "c"), dir / "q.safetensors");
}

TEST_CASE("a quantization-aware run is quantized with the ranges that it has learnt") {
  TempDir dir;
  Words job{config("mnist.cfg"), "--checkpoint.dir=" + (dir / "c").string(), "--train.max_steps=60",
            "--train.quantization_aware=true"};
  for (const auto& word : digits()) job.push_back(word);
  const double trained = accuracy_of(run_worker(job));
  const auto result = run_worker(with("quantize", job, {"--quantize.file=" + (dir / "q.safetensors").string()}));
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  const auto accuracy = row_of(result.out, "accuracy");
  CHECK(accuracy.before == trained);
  CHECK(std::abs(accuracy.after - accuracy.before) <= 0.1);
  CHECK(read_whole_file(dir / "q.safetensors").find("input_range") != std::string::npos);
}

TEST_CASE("a quantized gpt keeps its bits per byte, and generates from its file") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text, ";
  std::ofstream(dir / "input.txt") << text;
  const std::string file = (dir / "q.safetensors").string();
  const Words job{config("gpt_nano.cfg"), "--data.dir=" + dir.path().string(),
                  "--data.context=32",    "--train.max_steps=40",
                  "--model.layers=2",     "--checkpoint.dir=" + (dir / "c").string()};
  digest_of(run_worker(job));
  const auto result = run_worker(with("quantize", job, {"--quantize.file=" + file}));
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  const auto bits = row_of(result.out, "bits_per_byte"), bytes = row_of(result.out, "bytes");
  CHECK(bits.before < 4);
  CHECK(bits.after < 1.02 * bits.before);
  CHECK(bytes.after < 0.4 * bytes.before);
  const auto generated = [&](const Words& more) {
    const auto run = run_worker(with("generate", job, more));
    REQUIRE(run.code == 0);
    return run.out;
  };
  CHECK(generated({"--generate.tokens=30", "--generate.temperature=5", "--generate.quantized=" + file}) !=
        generated({"--generate.tokens=30", "--generate.temperature=5"}));
}

TEST_CASE("a distilled student predicts and is quantized without its teacher's file") {
  TempDir dir;
  const Words teacher{config("mnist_mlp.cfg"), "--data.name=random",  "--data.labels=true", "--data.outputs=3",
                      "--data.samples=200",    "--train.max_steps=4", "--model.hidden=8",   "--data.shape=6"};
  auto job = teacher;
  job.push_back("--checkpoint.dir=" + (dir / "t").string());
  digest_of(run_worker(job));
  job = teacher;
  for (const auto& word : {"--train.task=distillation", "--distill.teacher=mlp", "--distill.hidden=8"})
    job.push_back(word);
  job.push_back("--distill.weights=" + (dir / "t/step_000004/model.safetensors").string());
  job.push_back("--checkpoint.dir=" + (dir / "s").string());
  digest_of(run_worker(job));
  std::filesystem::remove_all(dir / "t");
  const auto predicted = run_worker(with("predict", job));
  const auto quantized = run_worker(with("quantize", job, {"--quantize.file=" + (dir / "q.safetensors").string()}));
  INFO(predicted.err << quantized.err);
  CHECK(predicted.code == 0);
  CHECK(predicted.out.starts_with("index,class,probability"));
  CHECK(quantized.code == 0);
  CHECK(quantized.out.find("accuracy") != std::string::npos);
  CHECK(run_worker(job).code == 2);  // the job is one of training
}

TEST_CASE("quantize refuses what it cannot quantize, in one line") {
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
