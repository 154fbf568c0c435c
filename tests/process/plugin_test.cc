// Models, data sets and tasks from a shared library.
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::string plugin(const std::string& name) {
  return std::string(DDPRUN_PLUGINS) + "/lib" + name + ".so";
}

struct Job {
  TempDir folder;
  std::string path = (folder / "train.cfg").string();

  explicit Job(const std::string& text) { std::ofstream(path) << text; }
};

std::string spiral_job(const std::string& library) {
  return "[model]\nplugin = " + library + "\nname = tanh_net\n[data]\nname = spiral\nsamples = 2000\n" +
         "test_samples = 500\n[spiral]\nwidth = 24\n[train]\nepochs = 12\nbatch_size = 25\n[optim]\nlr = 0.01\n";
}

// Returns the one line of a usage error, which begins with the program's name.
std::string mistake_of(const Words& arguments) {
  const auto result = run_worker(arguments);
  INFO(result.out << result.err);
  CHECK(result.code == 2);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  return result.err;
}

}  // namespace

TEST_CASE("a plugin's model learns the plugin's data set with two ranks, and resumes") {
  const Job job(spiral_job(plugin("spiral")));
  const auto run = [&](const Words& more) {
    Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", job.path};
    words.insert(words.end(), more.begin(), more.end());
    return run_job(words);
  };
  const auto whole = run({});
  CHECK(accuracy_of(whole) > 95);
  const std::string checkpoints = "--checkpoint.dir=" + (job.folder / "checkpoints").string();
  CHECK_THAT(run({checkpoints, "--train.max_steps=100"}).out, Catch::Contains("done: 100 steps"));
  const auto resumed = run({checkpoints});
  CHECK_THAT(resumed.out, Catch::Contains("going on from the checkpoint of step 100"));
  CHECK(digest_of(resumed) == digest_of(whole));
  CHECK(digest_of(run({"--spiral.noise=0.1"})) != digest_of(whole));
}

TEST_CASE("a plugin's keys are checked and printed as the built-in ones") {
  const Job job(spiral_job(plugin("spiral")));
  const auto printed = run_worker({job.path, "--spiral.noise", "0.5", "--print-config"});
  CHECK(printed.code == 0);
  CHECK(std::regex_search(
      printed.out, std::regex("\n\\[spiral\\]\nwidth = 24 +# " + job.path + ":9\nnoise = 0.5 +# --spiral.noise\n")));
  CHECK_THAT(mistake_of({job.path, "--spiral.width=0"}),
             Catch::Contains("--spiral.width: spiral.width = 0: expected a whole number from 1 to 1024"));
  CHECK_THAT(mistake_of({job.path, "--spiral.nois=0"}), Catch::Contains("did you mean spiral.noise?"));
  CHECK_THAT(mistake_of({job.path, "--model.name=tanh"}), Catch::Contains("gpt, tanh_net"));
}

TEST_CASE("a plugin's task and an operation that no built-in model uses train on built-in data") {
  const Job job("[model]\nname = gated\nplugin = " + plugin("absolute_error") +
                "\n[data]\nname = random\noutputs = 2\nnoise = 0\n[train]\ntask = mean_absolute_error\nepochs = 4\n");
  const auto result = run_worker({job.path, "--train.log_every=1"});
  digest_of(result);
  const auto loss_after = [&](const std::string& text) {
    std::smatch match;
    REQUIRE(std::regex_search(result.out, match, std::regex(text + ".* loss ([0-9.]+)")));
    return std::stod(match[1]);
  };
  CHECK(loss_after("done:") < 0.5 * loss_after("step 1/"));
}

TEST_CASE("a plugin that cannot be used is a mistake of one line") {
  const Job job("[model]\nplugin = ./libnothing.so\n");
  CHECK_THAT(mistake_of({job.path}),
             Catch::Contains(job.path + ":2: model.plugin = ./libnothing.so: cannot open shared object file: No such "
                                        "file or directory"));
  const auto mistake = [&](const std::string& name) {
    const std::string line = mistake_of({job.path, "--model.plugin=" + plugin(name)});
    const std::string expected = "--model.plugin: model.plugin = " + plugin(name) + ": ";
    CHECK_THAT(line, Catch::Contains(expected));
    return line.substr(std::min(line.find(expected) + expected.size(), line.size()));
  };
  CHECK(mistake("without_functions") == "does not export ddprun_register\n");
  CHECK_THAT(mistake("old_version"),
             Catch::Matches("was built for ddprun 0\\.0\\.9, this is [0-9.]+: build it again\n"));
  CHECK_THAT(mistake("other_headers"),
             Catch::Matches("was built with other headers or options than this ddprun [0-9.]+: build it again\n"));
  CHECK_THAT(mistake("undefined_symbol"), Catch::Contains("undefined symbol: there_is_no_such_function"));
  CHECK(mistake("throwing") == "ddprun_register: no licence\n");
  CHECK(mistake("throwing_a_number") == "ddprun_register threw an exception of an unknown type\n");
  CHECK_THAT(mistake_of({job.path, "--model.plugin=" + plugin("name_that_exists")}),
             Catch::Contains("model.plugin: the plugin adds the name cnn, which exists"));
  CHECK_THAT(mistake_of({job.path, "--model.plugin=" + plugin("key_that_exists")}),
             Catch::Contains("model.plugin: the plugin adds the key optim.lr, which exists"));
}

TEST_CASE("what a plugin's function throws names the key that asked for it") {
  const Job job("[model]\nplugin = " + plugin("absolute_error") + "\n[data]\nname = random\n");
  CHECK_THAT(mistake_of({job.path, "--model.name=refusing"}), Catch::Contains("model.name = refusing: not today"));
  CHECK_THAT(mistake_of({job.path, "--model.name=empty"}),
             Catch::Contains("model.name = empty: the plugin's function returned nothing"));
}
