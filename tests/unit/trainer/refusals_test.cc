#include "worker/trainer/config/refusals.h"

#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/atomic_file.h"
#include "common/config/config_file.h"
#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

// Lines of a train.cfg that set a setting as a row says.
const std::map<std::string, std::string>& examples() {
  static const std::map<std::string, std::string> all{
      {"parallel.hook", "[parallel]\nhook = fp16\n"},
      {"parallel.hook = onebit", "[parallel]\nhook = onebit\n"},
      {"parallel.hook other than fp16 and bf16", "[parallel]\nhook = int8\n"},
      {"parallel.zero", "[parallel]\nzero = 1\n"},
      {"parallel.zero = 2 and 3", "[parallel]\nzero = 2\n"},
      {"parallel.tensor", "[parallel]\ntensor = 2\n"},
      {"parallel.context", "[parallel]\ncontext = 2\n[model]\nname = gpt\n[data]\nname = text\n"},
      {"parallel.expert", "[parallel]\nexpert = 2\n[model]\nname = gpt\nexperts = 4\n[data]\nname = text\n"},
      {"parallel.pipeline", "[parallel]\npipeline = 2\nmicro_batches = 2\n"},
      {"parallel.micro_batches", "[parallel]\npipeline = 2\nmicro_batches = 2\n"},
      {"parallel.micro_batches with parallel.devices", "[parallel]\ndevices = cpu:0 cpu:1\nmicro_batches = 2\n"},
      {"parallel.devices", "[parallel]\ndevices = cpu:0 cpu:1\n"},
      {"parallel.devices = several CUDA devices", "[parallel]\ndevices = cuda:0 cuda:1\n[train]\ndevice = cuda\n"},
      {"parallel.strategy other than ddp", "[parallel]\nstrategy = local_sgd\n"},
      {"parallel.strategy = local_sgd and parameter_server", "[parallel]\nstrategy = local_sgd\n"},
      {"parallel.strategy = parameter_server", "[parallel]\nstrategy = parameter_server\n"},
      {"parallel.strategy = data_parallel", "[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1\n"},
      {"parallel.balance", "[parallel]\nbalance = true\n"},
      {"parallel.sync_batch_norm", "[parallel]\nsync_batch_norm = true\n[model]\nname = cnn_bn\n"},
      {"parallel.find_unused_parameters", "[parallel]\nfind_unused_parameters = true\n"},
      {"parallel.static_graph", "[parallel]\nstatic_graph = true\n"},
      {"parallel.ignored_parameters", "[parallel]\nignored_parameters = fc.bias\n"},
      {"parallel.broadcast_buffers = false", "[parallel]\nbroadcast_buffers = false\n[model]\nname = cnn_bn\n"},
      {"model.experts", "[model]\nname = gpt\nexperts = 4\n[data]\nname = text\n"},
      {"train.shards", "[train]\nshards = 8\n"},
      {"train.precision = fp16", "[train]\nprecision = fp16\n"},
      {"train.ema", "[train]\nema = 0.9\n"},
      {"train.quantization_aware", "[train]\nquantization_aware = true\n"},
      {"train.device = cuda", "[train]\ndevice = cuda\n"},
      {"optim.name other than adam and adamw", "[optim]\nname = sgd\n"},
      {"optim.name other than sgd, adam and adamw", "[optim]\nname = lamb\n"},
      {"optim.name = lamb, lars and muon", "[optim]\nname = lamb\n"},
      {"optim.clip_norm", "[optim]\nclip_norm = 1\n"},
      {"optim.clip_value", "[optim]\nclip_value = 1\n"},
      {"optim.skip_outliers", "[optim]\nskip_outliers = 3\n"},
      {"optim.offload", "[optim]\nname = adam\noffload = /tmp\n"},
      {"optim.schedule = plateau", "[optim]\nschedule = plateau\n"},
  };
  return all;
}

std::string error_of(const std::string& text) {
  try {
    TrainConfig config;
    Settings settings;
    bind(settings, config);
    apply(settings, parse_config(text, "t.cfg"), Origin::file);
    settle_batch_size(settings, config);
    settle_needs(settings, config);
    validate(config, settings);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Returns the lines with those that the rest of a row asks for.
std::string lines_of(const std::string& one, const std::string& two = "") {
  const std::string lines = examples().at(one) + (two.empty() ? "" : examples().at(two));
  const bool names_optimizer = lines.find("[optim]\nname") != std::string::npos;
  return lines + (one == "parallel.hook = onebit" && !names_optimizer ? "[optim]\nname = adam\n" : "");
}

std::string row_of_page(const Refusal& refusal) {
  std::vector<std::string> others;
  for (const SettingValues& other : refusal.others) others.push_back("`" + to_string(other) + "`");
  return fmt::format("| `{}` | {} | {} |", to_string(refusal.one), fmt::join(others, ", "), refusal.reason);
}

}  // namespace

TEST_CASE("settings that exclude each other are few, each pair in one row, and refused with the reason") {
  CHECK(refusals().size() <= 15);
  std::set<std::set<std::string>> pairs;
  for (const Refusal& refusal : refusals())
    for (const SettingValues& other : refusal.others) {
      const auto one = to_string(refusal.one), two = to_string(other);
      INFO(one << " and " << two);
      CHECK(pairs.insert({one, two}).second);
      CHECK_FALSE(refusal.reason.empty());
      CHECK_THAT(error_of(lines_of(one, two)), Catch::Contains(std::string(other.key) + " = ") &&
                                                   Catch::Contains("it does not go with ") &&
                                                   Catch::EndsWith(std::string(refusal.reason)));
    }
}

TEST_CASE("a setting by itself is not refused") {
  for (const auto& [name, lines] : examples()) {
    INFO(name << '\n' << lines);
    CHECK_THAT(error_of(lines_of(name)), !Catch::Contains("it does not go with "));
  }
}

TEST_CASE("the page about parallel training lists the settings that exclude each other") {
  std::istringstream page(read_whole_file(DDPRUN_DOCS "/parallelism.md"));
  std::vector<std::string> listed, expected;
  bool in_section = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) in_section = line == "## What does not go together";
    if (in_section && line.starts_with("| `")) listed.push_back(line);
  }
  for (const Refusal& refusal : refusals()) expected.push_back(row_of_page(refusal));
  CHECK(listed == expected);
}
