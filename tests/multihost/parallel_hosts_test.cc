// Forms of parallel training whose ranks are on two hosts: they learn what one process learns.
#include <algorithm>
#include <map>

#include "tests/multihost/hosts.h"
#include "tests/support/parallel_forms.h"
#include "tests/support/step_records.h"

using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds timeout{60};
constexpr int steps = 50;
const Variables one_thread{{"OMP_NUM_THREADS", "1"}};

// Returns those of two ranks that train a GPT exactly, and one that rounds.
std::vector<ParallelForm> forms_of_two_ranks() {
  auto forms = parallel_forms();
  std::erase_if(forms, [](const ParallelForm& form) {
    return form.ranks != 2 || !form.model.starts_with("gpt") || (!form.exact && form.name != "hook bf16");
  });
  return forms;
}

Words job_of(const ParallelForm& form, const std::filesystem::path& folder, const Words& launch) {
  Words words{DDPRUN_PROGRAM};
  words.insert(words.end(), launch.begin(), launch.end());
  words.push_back((folder / (form.model + ".cfg")).string());
  words.push_back("--train.max_steps=" + std::to_string(steps));
  words.push_back("--metrics.file=" + (folder / "metrics").string());
  for (const auto& each : form.overrides) words.push_back("--" + each);
  return words;
}

StepRecords run_alone(const std::string& model) {
  const TempDir folder;
  write_form_job(folder.path(), model, {});
  const ParallelForm one{.name = "one process", .model = model, .overrides = {}};
  const auto result = Child(job_of(one, folder.path(), {}), one_thread).wait(timeout);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return read_records(folder / "metrics");
}

StepRecords run_on_two_hosts(const ParallelForm& form) {
  const Hosts hosts(2);
  write_form_job(hosts.folder.path(), form.model, {});
  auto words = job_of(form, hosts.folder.path(), hosts.meeting({"--nnodes=2"}));
  words.emplace_back("--dist.backend=gloo");
  Child first(Hosts::behind(hosts.net.enter_isolated(0), words), one_thread);
  Child second(Hosts::behind(hosts.net.enter_isolated(1), words), one_thread);
  const auto a = first.wait(timeout), b = second.wait(timeout);
  INFO(a.err << b.err);
  REQUIRE(a.code == 0);
  REQUIRE(b.code == 0);
  return read_records(hosts.folder / "metrics");
}

}  // namespace

TEST_CASE("forms of parallel training over Gloo on two hosts learn what one process learns") {
  need_hosts();
  if (const auto why = NetnsHosts::why_not_isolated(); !why.empty()) SKIP(why);
  std::map<std::string, StepRecords> alone;
  for (const std::string model : {"gpt", "gpt_experts"}) {
    alone[model] = run_alone(model);
    CHECK(alone[model].losses.back() < alone[model].losses.front());
  }
  REQUIRE(forms_of_two_ranks().size() > 10);
  for (const auto& form : forms_of_two_ranks()) {
    INFO(form.name);
    const auto& expected = alone.at(form.model);
    const auto found = run_on_two_hosts(form);
    CHECK(largest_difference(expected.losses, found.losses, 10) < (form.exact ? 1e-6 : 1e-3));
    CHECK(largest_difference(expected.losses, found.losses, steps) < (form.exact ? 1e-5 : 1e-2));
    CHECK(found.bytes_sent.back() > 0);
  }
}
