#pragma once

#include "tests/process/worker.h"
#include "tests/support/step_records.h"

// Jobs on emulated CUDA devices, small, since each thread of a device is a fibre.
namespace ddprun::testing {

using Variables = std::map<std::string, std::string>;

inline Variables devices(const std::string& count) {
  return {{"OMP_NUM_THREADS", "1"}, {"DDPRUN_CUDA_EMULATOR", count}, {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE}};
}

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Model {
  std::string name;
  Words words;  // the configuration, and what makes it small
};
inline const Words digits{"--data.name=digits",   "--data.samples=320",  "--data.test_samples=16",
                          "--train.batch_size=8", "--eval.batch_size=8", "--train.max_steps=20"};
inline const Model small_cnn{"the CNN", joined({config("mnist.cfg")}, digits)};
inline const Model small_mlp{"the MLP", joined({config("mnist_mlp.cfg"), "--model.hidden=32 16"}, digits)};

// A folder with a text, and the small GPT that reads it.
class SmallGpt {
 public:
  SmallGpt() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + ".\n";
    write_file_atomically(dir_ / "input.txt", text);
  }
  Model model() const {
    return {"a small GPT",
            {config("gpt_nano.cfg"), "--data.dir=" + dir_.path().string(), "--data.context=16", "--model.layers=2",
             "--model.heads=2", "--model.width=16", "--model.context=16", "--train.batch_size=2", "--eval.batch_size=2",
             "--train.max_steps=20", "--optim.warmup=2"}};
  }

 private:
  TempDir dir_;
};

// Runs the job as one process or as several ranks.
inline Child::Result train(int ranks, const Words& words, const Variables& variables) {
  const auto program = ranks == 1 ? Words{DDPRUN_WORKER}
                                  : Words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  auto result = Child(joined(program, words), variables).wait(std::chrono::seconds(250));
  result.out = without_prefixes(result.out);
  return result;
}

struct Run {
  std::string digest, out;
  std::vector<double> losses;
};

inline Run run(int ranks, Words words, const Variables& variables) {
  TempDir dir;
  words.push_back("--metrics.file=" + (dir / "m.jsonl").string());
  const auto result = train(ranks, words, variables);
  return {.digest = digest_of(result), .out = result.out, .losses = read_records(dir / "m.jsonl").losses};
}

inline Run run(int ranks, const Words& words, const std::string& device, const std::string& count = "2") {
  return run(ranks, joined(words, {"--train.device=" + device}), devices(count));
}

}  // namespace ddprun::testing
