#include "tests/process/worker.h"

#include <boost/json.hpp>

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string linear = config("linear.cfg");

bool has_line(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex("(^|\n)" + pattern + "\n"));
}

}  // namespace

TEST_CASE("a worker that is started without a launcher trains as the only rank") {
  const auto result = run_worker({linear});
  digest_of(result);
  CHECK_THAT(result.out, Catch::Contains("step 100/785, epoch 1/5, loss "));
  CHECK_THAT(result.out, Catch::Contains("epoch 5/5: test loss 0.01"));
  CHECK_THAT(result.out, Catch::Contains("\ndone: 785 steps, loss 0.01"));
  CHECK(result.err.empty());
  CHECK(digest_of(run_worker({linear})) == digest_of(result));
}

TEST_CASE("the effective configuration is printed with the origin of each value") {
  TempDir dir;
  write_file_atomically(dir / "t.cfg", "[launch]\nnproc_per_node = 2\n[train]\nepochs = 7\nseed = 3\n");
  const auto path = (dir / "t.cfg").string();
  const auto result = run_worker({path, "--train.seed=4", "--print-config"});
  CHECK(result.code == 0);
  CHECK(has_line(result.out, "epochs = 7 +# " + path + ":4"));
  CHECK(has_line(result.out, "seed = 4 +# --train.seed"));
  CHECK(has_line(result.out, "batch_size = 64 +# default"));
  CHECK(result.out.find("nproc_per_node") == std::string::npos);
  write_file_atomically(dir / "again.cfg", result.out);
  CHECK(run_worker({dir / "again.cfg", "--print-config"}).code == 0);
}

TEST_CASE("configs/reference.md is the output of --reference") {
  CHECK(run_worker({"--reference"}).out == read_whole_file(config("reference.md")));
}

TEST_CASE("the version names the libraries") {
  const auto result = run_worker({"--version"});
  CHECK(result.code == 0);
  CHECK(result.out.starts_with("ddprun-worker "));
  for (const char* library : {"Boost ", "Gloo ", "oneDNN "}) CHECK_THAT(result.out, Catch::Contains(library));
}

TEST_CASE("a usage error is one line and exit code 2") {
  TempDir dir;
  const auto cfg = (dir / "t.cfg").string();
  write_file_atomically(cfg, "[train]\nepoch = 7\n");
  const auto fails = [](const Words& arguments) {
    const auto result = run_worker(arguments);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    return result.err;
  };
  CHECK_THAT(fails({cfg}), Catch::EndsWith(cfg + ":2: unknown key train.epoch; did you mean train.epochs?\n"));
  CHECK_THAT(fails({dir / "none.cfg"}), Catch::Contains("cannot open " + (dir / "none.cfg").string()));
  CHECK_THAT(fails({}), Catch::Contains("no train.cfg was given"));
  CHECK_THAT(fails({linear, "--train.epochs=many"}),
             Catch::EndsWith("--train.epochs: train.epochs = many: expected a whole number from 1 to 1000000000\n"));
  CHECK_THAT(fails({linear, "--epochs=3"}),
             Catch::EndsWith("'--epochs=3': expected --section.key=value; did you mean --train.epochs?\n"));
  CHECK_THAT(fails({linear, "more.cfg"}), Catch::Contains("'more.cfg': expected --section.key=value"));
  CHECK_THAT(fails({config("mnist.cfg"), "--data.dir=" + dir.path().string()}),
             Catch::Contains("--data.dir: data.dir = " + dir.path().string() + ": expected the four IDX files"));
  CHECK_THAT(fails({config("mnist.cfg"), "--data.name=random"}),
             Catch::Contains("default: data.shape = 16: model cnn takes"));
  CHECK_THAT(fails({linear, "--dist.backend=nccl"}),
             Catch::Contains("--dist.backend: dist.backend = nccl: NCCL exchanges"));
}

TEST_CASE("bytes of a file that is not a train.cfg are not written to the terminal unescaped") {
  TempDir dir;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i * 7 + 27);
  for (const auto& text :
       Words{"\x1b[2J" + bytes, "[train]\nepochs = \xff\xfe\n" + bytes, read_whole_file(DDPRUN_WORKER)}) {
    write_file_atomically(dir / "t.cfg", text);
    const auto result = run_worker({dir / "t.cfg"});
    CHECK(result.code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(
        std::all_of(result.err.begin(), result.err.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    CHECK(result.err.size() < 400);
  }
}

TEST_CASE("output that cannot be written is an error") {
  for (const std::string& arguments :
       Words{"--help", "--reference", "--version", linear + " --print-config", linear + " --train.max_steps=1"}) {
    INFO(arguments);
    const auto result =
        Child({"/bin/sh", "-c", std::string("exec ") + DDPRUN_WORKER + " " + arguments + " > /dev/full"}, one_thread)
            .wait(std::chrono::seconds(100));
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::EndsWith("cannot write to standard output: No space left on device\n"));
  }
}

TEST_CASE("closed standard output is an error, and no other file gets the output") {
  TempDir dir;
  const auto metrics = (dir / "m").string();
  const auto result = Child({"/bin/sh", "-c",
                             std::string("exec ") + DDPRUN_WORKER + " " + linear +
                                 " --train.max_steps=2 --train.log_every=1 --metrics.file=" + metrics + " >&-"},
                            one_thread)
                          .wait(std::chrono::seconds(100));
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::EndsWith("cannot write to standard output: Bad file descriptor\n"));
  std::istringstream lines(read_whole_file(metrics));
  for (std::string line; std::getline(lines, line);) CHECK(line.starts_with("{"));
}

TEST_CASE("a loss that is not finite ends the run before a checkpoint is written") {
  TempDir dir;
  const Words arguments{linear,
                        "--optim.lr=1e30",
                        "--train.max_steps=20",
                        "--checkpoint.every_steps=1",
                        "--checkpoint.keep=100",
                        "--checkpoint.dir=" + (dir / "c").string(),
                        "--metrics.file=" + (dir / "m").string()};
  const auto stopped = run_worker(arguments);
  CHECK(stopped.code == 1);
  CHECK(stopped.out.find("done:") == std::string::npos);
  std::smatch match;
  REQUIRE(
      std::regex_search(stopped.err, match,
                        std::regex("error: the loss of step ([0-9]+) is (nan|inf): training has diverged and stops")));
  const auto step = std::stoi(match[1]);
  REQUIRE(step > 1);
  CHECK(std::distance(std::filesystem::directory_iterator(dir / "c"), {}) == step - 1);
  const auto metrics = read_whole_file(dir / "m");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 1 + step);
  CHECK_THAT(metrics, Catch::Contains("\"loss\": null"));

  auto again = arguments;
  again.push_back("--train.stop_on_nonfinite=false");
  const auto continued = run_worker(again);
  CHECK(continued.code == 0);
  CHECK_THAT(continued.err, Catch::Contains("the loss of step " + std::to_string(step) + " is "));
  CHECK(std::regex_search(continued.out, std::regex("done: 20 steps, loss (nan|inf) \\(not finite since step " +
                                                    std::to_string(step) + "\\), parameters")));
}

TEST_CASE("a run whose every step is skipped warns from the third on, and ends with exit code 1") {
  TempDir dir;
  const Words arguments{linear, "--train.precision=fp16", "--train.loss_scale=1e30",
                        "--checkpoint.dir=" + (dir / "c").string()};
  auto short_run = arguments;
  short_run.push_back("--train.max_steps=5");
  const auto none = run_worker(short_run);
  CHECK(none.code == 1);
  CHECK_THAT(none.out, Catch::Contains("\ndone: 5 steps (5 skipped), loss "));
  CHECK_THAT(none.err, Catch::Contains("error: all 5 steps were skipped"));
  CHECK_THAT(none.err, !Catch::Contains("steps 1 to 2 are skipped"));
  for (const std::string last : {"3", "4", "5"})
    CHECK_THAT(none.err, Catch::Contains("steps 1 to " + last + " are skipped: their gradients are not finite"));
  CHECK(run_worker(short_run).code == 1);  // it is complete when it resumes

  auto longer = arguments;
  longer.push_back("--train.max_steps=120");
  const auto some = run_worker(longer);  // it is halved so often that the scale fits
  CHECK(some.code == 0);
  CHECK(std::regex_search(some.out, std::regex("\ndone: 120 steps \\(([1-9][0-9]*) skipped\\), loss [0-9.]+")));
}

TEST_CASE("the last line counts one step in the singular") {
  CHECK_THAT(run_worker({linear, "--train.max_steps=1"}).out, Catch::Contains("\ndone: 1 step, loss "));
}

TEST_CASE("a usage error is logged by each worker, and under a launcher written only to the error file") {
  TempDir dir;
  std::map<std::string, std::string> second{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}};
  const auto by_hand = run_worker({"/nonexistent.cfg"}, second);  // without a launcher
  CHECK(by_hand.code == 2);
  CHECK_THAT(by_hand.err, Catch::Contains("/nonexistent.cfg"));
  second["TORCHELASTIC_ERROR_FILE"] = (dir / "error.json").string();
  const auto launched = run_worker({"/nonexistent.cfg"}, second);
  CHECK(launched.code == 2);
  CHECK_THAT(launched.err, Catch::Contains("/nonexistent.cfg"));  // without TORCHELASTIC_RUN_ID no launcher prints it
  second["TORCHELASTIC_RUN_ID"] = "job";
  const auto under_launcher = run_worker({"/nonexistent.cfg"}, second);
  CHECK(under_launcher.code == 2);
  CHECK(under_launcher.err.empty());
  CHECK_THAT(read_whole_file(dir / "error.json"), Catch::Contains("/nonexistent.cfg"));
}

TEST_CASE("a worker that fails writes the reason to its error file") {
  TempDir dir;
  const auto file = (dir / "error.json").string();
  auto variables = one_thread;
  variables["TORCHELASTIC_ERROR_FILE"] = file;
  const auto result = run_worker({linear, "--metrics.file=/dev/full"}, variables);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("cannot write /dev/full: No space left on device"));
  const auto reason = boost::json::parse(read_whole_file(file)).at("message");
  CHECK(reason.at("message").as_string() == "cannot write /dev/full: No space left on device");
  CHECK(std::stoll(reason.at("extraInfo").at("timestamp").as_string().c_str()) > 1600000000);
}

TEST_CASE("the metrics file has every step and every evaluation") {
  TempDir dir;
  run_worker({linear, "--metrics.file=" + (dir / "m").string(), "--train.max_steps=200"});
  std::istringstream lines(read_whole_file(dir / "m"));
  std::string memory;
  REQUIRE(std::getline(lines, memory));
  CHECK(
      memory.starts_with("{\"rank\": 0, \"parameter_bytes\": 272, \"gradient_bytes\": 272, \"optimizer_bytes\": 0, "));
  std::int64_t steps = 0;
  std::int64_t evaluations = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (record.contains("eval_loss")) {
      CHECK(record.at("epoch").as_int64() == ++evaluations);
      CHECK(record.at("accuracy").is_null());
      continue;
    }
    CHECK(record.at("step").as_int64() == ++steps);
    CHECK(record.at("epoch").as_int64() == (steps <= 157 ? 1 : 2));
    CHECK(record.at("samples_per_s").to_number<double>() > 0);
    const auto compute = record.at("compute").to_number<double>();
    const auto wait = record.at("wait").to_number<double>();
    CHECK((compute >= 0 && wait >= 0 && compute + wait <= 1.0001));
  }
  CHECK(steps == 200);
  CHECK(evaluations == 2);
}

TEST_CASE("a completed run that is started again does no further step") {
  TempDir dir;
  const Words arguments{linear, "--checkpoint.dir=" + (dir / "c").string(), "--checkpoint.every_steps=100"};
  const auto first = run_worker(arguments);
  const auto second = run_worker(arguments);
  CHECK(digest_of(first) == digest_of(second));
  CHECK_THAT(second.out, Catch::Contains("going on from the checkpoint of step 785 in "));
  CHECK(second.out.find("step 800") == std::string::npos);
}

TEST_CASE("if no checkpoint can be read the run fails and leaves them unchanged") {
  TempDir dir;
  const auto folder = dir / "c";
  const Words arguments{linear, "--train.max_steps=6", "--checkpoint.dir=" + folder.string(),
                        "--checkpoint.every_steps=3"};
  const auto first = run_worker(arguments);
  for (const auto* name : {"step_000003", "step_000006"}) {
    auto manifest = read_whole_file(folder / name / "manifest.json");
    manifest[manifest.size() / 2] = '\1';
    write_file_atomically(folder / name / "manifest.json", manifest);
  }
  const auto refused = run_worker(arguments);
  CHECK(refused.code == 2);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Catch::Contains("no checkpoint in " + folder.string() + " can be used (2 found)") &&
                              Catch::Contains((folder / "step_000006/manifest.json").string()));
  for (const auto* name : {"step_000003", "step_000006"}) CHECK(std::filesystem::exists(folder / name / "state.json"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 2);

  auto again = arguments;
  again.push_back("--checkpoint.resume=never");
  CHECK(digest_of(run_worker(again)) == digest_of(first));
  again.back() = "--checkpoint.resume=require";
  CHECK_THAT(run_worker(again).out, Catch::Contains("going on from the checkpoint of step 6 in "));
}

TEST_CASE("a worker ended by SIGTERM is ended by SIGTERM") {
  Child child({DDPRUN_WORKER, config("mnist.cfg"), "--data.name=digits", "--train.epochs=1000", "--train.log_every=1"},
              one_thread);
  child.wait_for_out("step 3/");
  child.signal(SIGTERM);
  CHECK(child.wait().signal_number == SIGTERM);
}

TEST_CASE("get-data downloads, resumes an interrupted download, and reports errors") {
  TempDir dir;
  TempDir mirror;
  std::string sums;
  for (const auto* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"})
    write_file_atomically(mirror / name, std::string("content of ") + name);
  const auto md5 = Child({"/usr/bin/env", "sh", "-c", "cd " + mirror.path().string() + " && md5sum *.gz"}).wait();
  write_file_atomically(dir / "sums", md5.out);
  const auto get = [&](const Words& more) {
    Words words{DDPRUN_GET_DATA, "mnist", "--to", dir / "mnist"};
    words.insert(words.end(), more.begin(), more.end());
    return Child(words).wait();
  };
  const auto url = "file://" + mirror.path().string();

  const auto missing = get({"--mirror", "file:///nonexistent"});
  CHECK(missing.code == 1);
  CHECK_THAT(missing.err, Catch::Contains("train-images-idx3-ubyte.gz could not be fetched from file:///nonexistent"));
  const auto wrong = get({"--mirror", url});  // not the real MNIST
  CHECK(wrong.code == 1);
  CHECK_THAT(wrong.err, Catch::Contains("expected f68b3c2dcbeaaa9fbdd348bbdeb94873"));

  write_file_atomically(dir / "mnist/t10k-images-idx3-ubyte.gz.part", "content");  // as after an interrupted download
  const auto fetched = get({"--mirror", url, "--sums", dir / "sums"});
  INFO(fetched.err);
  CHECK(fetched.code == 0);
  CHECK(read_whole_file(dir / "mnist/t10k-images-idx3-ubyte.gz") == "content of t10k-images-idx3-ubyte.gz");
  CHECK_THAT(get({"--mirror", "file:///nonexistent", "--sums", dir / "sums"}).out,
             Catch::Contains("train-labels-idx1-ubyte.gz: there already"));
  const auto no_sums = get({"--sums", dir / "none"});
  CHECK(no_sums.code == 2);
  CHECK_THAT(no_sums.err, Catch::Contains((dir / "none").string()));
  CHECK(Child({DDPRUN_GET_DATA, "imagenet"}).wait().code == 2);
}

TEST_CASE("get-data unpacks CIFAR-10 in one piece") {
  TempDir dir;
  TempDir mirror;
  const auto shell = [&](const std::string& command) {
    const auto result = Child({"/usr/bin/env", "sh", "-c", "cd " + mirror.path().string() + " && " + command}).wait();
    REQUIRE(result.code == 0);
    return result.out;
  };
  const auto get = [&](const Words& more) {
    Words words{DDPRUN_GET_DATA, "cifar10", "--to", dir / "cifar10", "--mirror", "file://" + mirror.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return Child(words).wait();
  };
  shell(
      "mkdir batches && cd batches && for i in 1 2 3 4 5; do echo $i >data_batch_$i.bin; done && echo a >readme.html");
  const auto pack = [&] {
    write_file_atomically(dir / "sums",
                          shell("tar czf cifar-10-binary.tar.gz batches && sha256sum cifar-10-binary.tar.gz"));
  };

  pack();
  const auto wrong = get({});  // not the real CIFAR-10
  CHECK(wrong.code == 1);
  CHECK_THAT(wrong.err, Catch::Contains("expected c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"));
  const auto partial = get({"--sums", dir / "sums"});
  CHECK(partial.code == 1);
  CHECK_THAT(partial.err, Catch::Contains("cifar-10-binary.tar.gz does not hold data_batch_1.bin"));
  CHECK_FALSE(std::filesystem::exists(dir / "cifar10/data_batch_1.bin"));

  shell("echo test >batches/test_batch.bin");
  pack();
  const auto fetched = get({"--sums", dir / "sums"});
  INFO(fetched.err);
  CHECK(fetched.code == 0);
  CHECK(read_whole_file(dir / "cifar10/data_batch_4.bin") == "4\n");
  CHECK(read_whole_file(dir / "cifar10/test_batch.bin") == "test\n");
  CHECK(std::distance(std::filesystem::directory_iterator(dir / "cifar10"), {}) == 6);
  shell("rm cifar-10-binary.tar.gz");
  CHECK_THAT(get({"--sums", dir / "sums"}).out, Catch::Contains("test_batch.bin: there already"));
}

TEST_CASE("get-data knows Tiny Shakespeare by its SHA-256") {
  TempDir dir;
  TempDir mirror;
  const auto get = [&] {
    return Child({DDPRUN_GET_DATA, "tinyshakespeare", "--to", dir / "text", "--mirror",
                  "file://" + mirror.path().string()})
        .wait();
  };
  write_file_atomically(mirror / "input.txt", "another text");
  CHECK_THAT(get().err, Catch::Contains("expected 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"));
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  if (!folder) SKIP("DDPRUN_TEST_DATA names no folder with tinyshakespeare");
  std::filesystem::copy_file(std::filesystem::path(*folder) / "tinyshakespeare/input.txt", mirror / "input.txt",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(get().code == 0);
  CHECK(std::filesystem::file_size(dir / "text/input.txt") == 1115394);
}
