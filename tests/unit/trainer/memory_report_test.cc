#include "worker/trainer/report/memory_report.h"

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The model is 16 -> 8 -> 1: 136 and 9 parameters.
const std::string job_text =
    "[model]\nname = mlp\nhidden = 8\n[data]\nname = random\nsamples = 100\ntest_samples = 10\n[train]\nbatch_size = "
    "10\n";
constexpr std::size_t parameter_bytes = (136 + 9) * sizeof(float);

std::vector<boost::json::object> records_of(const std::filesystem::path& metrics) {
  std::vector<boost::json::object> records;
  std::istringstream lines(read_whole_file(metrics));
  for (std::string line; std::getline(lines, line);) records.push_back(boost::json::parse(line).as_object());
  return records;
}

}  // namespace

TEST_CASE("parameters, gradients and the optimizer's state are counted, as a whole and by part") {
  const TrainingJob job(job_text);
  Replica replica(job);
  run_ranks(1, [&](ProcessGroup& group) {
    const auto session = replica.session(group);
    session->record_saved_bytes();
    session->step(false);
    const auto all = trainer::memory_of(replica.state, 123);
    const auto parts = trainer::memory_by_module(replica.state, session->saved_bytes());
    std::map<std::string, trainer::MemoryUse> by_name;
    for (const auto& part : parts) by_name[part.name] = part.use;
    const auto check = [](bool holds, const char* what) {
      if (!holds) throw std::runtime_error(what);
    };
    check(all.parameters == parameter_bytes && all.gradients == parameter_bytes, "parameters and gradients");
    check(all.optimizer == 2 * parameter_bytes && all.activations == 123, "optimizer and activations");
    check(by_name.at("fc1").parameters == 136 * 4 && by_name.at("fc2").gradients == 9 * 4, "parts");
    check(by_name.at("fc1").optimizer == 2 * 136 * 4, "part of the optimizer");
    // The activations are the input of 10 x 16 numbers, and the result of relu, which fc2 keeps as well.
    check(by_name.at("fc1").activations == 10 * 16 * 4, "input of fc1");
    check(by_name.at("relu1").activations + by_name.at("fc2").activations == 10 * 8 * 4, "relu");
  });
}

TEST_CASE("the peak of a step is the same in every step and every run") {
  const auto peaks = [] {
    const TrainingJob job(job_text);
    Replica replica(job);
    std::vector<std::size_t> all;
    run_ranks(1, [&](ProcessGroup& group) {
      const auto session = replica.session(group);
      for (int i = 0; i < 3; ++i) all.push_back(session->step(false).activation_peak);
    });
    return all;
  };
  const auto first = peaks();
  CHECK(first[0] >= 3 * 10 * 8 * 4);
  CHECK(first == std::vector<std::size_t>(3, first[0]));
  CHECK(peaks() == first);
}

TEST_CASE("the metrics begin with the memory of every rank, once, also when the run goes on") {
  const TempDir dir;
  for (const int steps : {2, 4})
    TrainingJob(job_text + "max_steps = " + std::to_string(steps) + "\n[checkpoint]\ndir = " + (dir / "c").string() +
                "\n[metrics]\nfile = " + (dir / "m").string() + "\n")
        .run(2);
  const auto records = records_of(dir / "m");
  REQUIRE(records.size() > 6);
  for (std::size_t i = 0; i < records.size(); ++i) CHECK(records[i].contains("rank") == (i < 2));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(records[rank].at("rank").to_number<std::size_t>() == rank);
    CHECK(records[rank].at("parameter_bytes").to_number<std::size_t>() == parameter_bytes);
    CHECK(records[rank].at("gradient_bytes").to_number<std::size_t>() == parameter_bytes);
    CHECK(records[rank].at("optimizer_bytes").to_number<std::size_t>() == 2 * parameter_bytes);
    CHECK(records[rank].at("activation_peak_bytes").to_number<std::size_t>() > 0);
    CHECK(records[rank].at("parameter_peak_bytes").to_number<std::size_t>() == parameter_bytes);
    CHECK(records[rank].at("gradient_peak_bytes").to_number<std::size_t>() == parameter_bytes);
  }
}

TEST_CASE("parts are grouped by the first name, with a number behind it") {
  const auto lines = trainer::memory_table({.parameters = std::size_t{3} << 20},
                                           {{"h.0", {.parameters = std::size_t{2} << 20, .activations = 1 << 19}}});
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "memory in MiB    parameters  gradients  optimizer activations");
  CHECK(lines[1] == "h.0                    2.00       0.00       0.00        0.50");
  CHECK(lines[2] == "all, at the peak       3.00       0.00       0.00        0.00");
}

TEST_CASE("a rank on a device has rows for the device and the host, and the same as fields of its record") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  trainer::DeviceMemoryReport report{
      .device = {DeviceType::cuda, 1},
      .on_device = {.workspaces = mib, .kept = 2 * mib, .free = 50 * mib, .total = 64 * mib},
      .activations = {.device = 7 * mib, .host = mib}};
  const auto set = [](MemoryByOwner& owners, MemoryOwner owner, std::size_t bytes) {
    owners[static_cast<std::size_t>(owner)] = bytes;
  };
  set(report.on_device.owners, MemoryOwner::parameters, 3 * mib);
  set(report.on_device.owners, MemoryOwner::gradients, 4 * mib);
  set(report.on_device.owners, MemoryOwner::optimizer, 6 * mib);
  set(report.on_host, MemoryOwner::gradients, 5 * mib);
  const trainer::MemoryUse use{.parameters = 3 * mib, .device = report};
  const auto lines = trainer::memory_table(use, {});
  REQUIRE(lines.size() == 5);
  CHECK(lines[2] == "of it cuda:1           3.00       4.00       6.00        7.00");
  CHECK(lines[3] == "of it the host         0.00       5.00       0.00        1.00");
  CHECK(lines[4] ==
        "cuda:1: 50.0 MiB of 64.0 MiB free; held by optimizer state 6.0 MiB, gradients 4.0 MiB, parameters 3.0 MiB, "
        "kept for the next allocation 2.0 MiB, workspaces of operations 1.0 MiB");

  const auto record = boost::json::parse(trainer::to_json(2, use)).as_object();
  CHECK(record.at("rank").to_number<int>() == 2);
  CHECK(record.at("device").as_string() == "cuda:1");
  const auto& on_device = record.at("device_bytes").as_object();
  CHECK(on_device.at("optimizer").to_number<std::size_t>() == 6 * mib);
  CHECK(on_device.at("activation_peak").to_number<std::size_t>() == 7 * mib);
  CHECK(on_device.at("kept").to_number<std::size_t>() == 2 * mib);
  CHECK(on_device.at("total").to_number<std::size_t>() == 64 * mib);
  CHECK(record.at("host_bytes").as_object().at("gradients").to_number<std::size_t>() == 5 * mib);
  CHECK_FALSE(boost::json::parse(trainer::to_json(2, {})).as_object().contains("device"));
}

TEST_CASE("optimizer state, gradients and parameters fall to a rank's share, each in turn") {
  // The sizes divide into parts of 16 elements: 64 -> 64 -> 32, without a remainder for 2 and 4 ranks.
  const std::string job =
      "[model]\nname = mlp\nhidden = 64\n[data]\nname = random\nshape = 64\noutputs = 32\nsamples = 100\n"
      "test_samples = 10\n[train]\nglobal_batch_size = 12\nmax_steps = 2\n";
  constexpr std::size_t all = (64 * 64 + 64 + 64 * 32 + 32) * sizeof(float);
  for (const std::size_t ranks : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      INFO(ranks << " ranks, zero = " << zero);
      const TempDir dir;
      TrainingJob(job + "[parallel]\nzero = " + std::to_string(zero) + "\n[metrics]\nfile = " + (dir / "m").string() +
                  "\n")
          .run(static_cast<int>(ranks));
      std::map<std::string, std::size_t> sum;
      const auto records = records_of(dir / "m");
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (const auto& [key, value] : records.at(rank)) sum[key] += value.to_number<std::size_t>();
        // No rank has more than a share and the padding of a unit's parts.
        if (zero >= 3) CHECK(records[rank].at("parameter_bytes").to_number<std::size_t>() <= all / ranks + 4 * 64);
        if (zero >= 2) CHECK(records[rank].at("gradient_bytes").to_number<std::size_t>() <= all / ranks + 4 * 64);
        if (zero >= 1) CHECK(records[rank].at("optimizer_bytes").to_number<std::size_t>() <= 2 * all / ranks + 8 * 64);
        if (zero >= 2)
          CHECK(records[rank].at("gradient_peak_bytes").to_number<std::size_t>() >
                records[rank].at("gradient_bytes").to_number<std::size_t>());
      }
      CHECK(sum["optimizer_bytes"] == 2 * all * (zero >= 1 ? 1 : ranks));
      CHECK(sum["gradient_bytes"] == all * (zero >= 2 ? 1 : ranks));
      CHECK(sum["parameter_bytes"] == all * (zero >= 3 ? 1 : ranks));
    }
  }
}
