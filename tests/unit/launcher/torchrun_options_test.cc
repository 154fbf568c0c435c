#include <algorithm>
#include <cctype>

#include "common/error.h"
#include "launcher/agent/job.h"
#include "launcher/cli/command_line.h"
#include "tests/support/catch.h"

// Every option of torchrun: both spellings, the environment, the default, and the error for a bad value.
using namespace ddprun;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

struct Row {
  std::string name;
  std::string fallback;   // the default, as printed
  std::string good;       // a valid value; "1" for a flag, as in the environment
  std::string bad;        // an invalid value; empty: every text is valid
  std::string complaint;  // the error, after the name of the option or variable
};

bool is_flag(const Row& row) {
  return row.fallback == "false";
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"nnodes", "1:1", "1:4", "4:1", " = 4:1: expected N or MIN:MAX with 1 <= MIN <= MAX <= 65536"},
      {"nproc_per_node", "1", "3", "tpu", " = tpu: expected a number from 1 to 4096, cpu, gpu, xpu or auto"},
      {"rdzv_backend", "c10d", "static", "zoo", ": launch.rdzv_backend = zoo: expected one of c10d, static, etcd"},
      {"rdzv_endpoint", "", "h:1", "h:x", ""},
      {"rdzv_id", "none", "job7", "", ""},
      {"rdzv_conf", "", "join_timeout=3", "join_timeout", ": 'join_timeout': expected KEY=VALUE"},
      {"standalone", "false", "1", "maybe", ": launch.standalone = maybe: expected true or false"},
      {"max_restarts", "0", "3", "-1", ": launch.max_restarts = -1: expected a whole number at least 0"},
      {"monitor_interval", "0.1", "5", "0", ""},
      {"start_method", "spawn", "fork", "vfork",
       ": launch.start_method = vfork: expected one of spawn, fork, forkserver"},
      {"event_log_handler", "null", "console", "kafka", " = kafka: expected null, console or file:PATH"},
      {"role", "default", "trainer", "", ""},
      {"module", "false", "1", "maybe", ": launch.module = maybe: expected true or false"},
      {"no_python", "false", "1", "maybe", ": launch.no_python = maybe: expected true or false"},
      {"log_dir", "", "/tmp/logs", "", ""},
      {"log_line_prefix_template", "", "${hostname}:${rank} ", "", ""},
      {"redirects", "0", "0:1,11:3", "4",
       " = 4: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:N[,RANK:N...]"},
      {"tee", "0", "3", "0: 1", " = 0: 1: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:N[,RANK:N...]"},
      {"local_ranks_filter", "", "0,12", "x", " = x: expected local ranks, RANK[,RANK...]"},
      {"duplicate_stdout_filters", "", "a,,b", "", ""},
      {"duplicate_stderr_filters", "", "a,b", "", ""},
      {"node_rank", "0", "2", "-1", ": launch.node_rank = -1: expected a whole number from 0 to 65535"},
      {"master_addr", "127.0.0.1", "h", "", ""},
      {"master_port", "29500", "1", "65536", ": launch.master_port = 65536: expected a whole number from 0 to 65535"},
      {"local_addr", "", "10.0.0.1", "", ""},
      {"signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "SIGTERM", "TERM",
       " = TERM: 'TERM' is not a signal; expected names like SIGTERM,SIGINT"},
      {"shutdown_timeout", "30", "5", "-1", ""},
      {"numa_binding", "", "core-complex", "l3",
       ": launch.numa_binding = l3: expected one of node, socket, exclusive, core-complex"},
      {"virtual_local_rank", "false", "1", "maybe", ": launch.virtual_local_rank = maybe: expected true or false"},
  };
  return table;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string dashed(std::string text) {
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// Returns a setting's value for this command line and environment, with all checks that precede a job.
std::string value_of(const std::string& name, Words arguments, const Variables& variables = {}) {
  const Environment environment(variables);
  LaunchSettings settings;
  arguments.emplace_back("/bin/true");
  const auto line = parse_command_line(arguments, settings);
  settings.apply_environment(environment);
  const auto choice = choose_rendezvous(settings, environment);
  make_agent_spec(settings, choice, environment, line.command, "/nonexistent");
  return settings.settings().find("launch." + name)->print();
}

// Returns it without the checks across options.
std::string parsed(const std::string& name, Words arguments, const Variables& variables = {}) {
  LaunchSettings settings;
  arguments.emplace_back("/bin/true");
  parse_command_line(arguments, settings);
  settings.apply_environment(Environment(variables));
  return settings.settings().find("launch." + name)->print();
}

std::string error_of(const Row& row, const Words& arguments, const Variables& variables = {}) {
  try {
    value_of(row.name, arguments, variables);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every option of torchrun is supported or refused with a reason") {
  const LaunchSettings settings;
  for (const auto& row : rows()) {
    INFO(row.name);
    const auto* setting = settings.settings().find("launch." + row.name);
    REQUIRE(setting);
    CHECK(setting->fallback == row.fallback);
    CHECK_FALSE(setting->spec.help.empty());
  }
  for (const auto& option : settings.table()) {
    INFO(option.name);
    const bool listed =
        std::any_of(rows().begin(), rows().end(), [&](const Row& row) { return row.name == option.name; });
    CHECK(listed != (option.added || !option.refusal.empty()));
  }
}

TEST_CASE("every option of torchrun has both spellings and its variable") {
  for (const auto& row : rows()) {
    INFO(row.name);
    const auto expected = is_flag(row) ? "true" : row.good;
    for (const auto& spelling : {"--" + row.name, "--" + dashed(row.name)}) {
      if (is_flag(row)) {
        CHECK(parsed(row.name, {spelling}) == expected);
        continue;
      }
      CHECK(parsed(row.name, {spelling, row.good}) == expected);
      CHECK(parsed(row.name, {spelling + "=" + row.good}) == expected);
    }
    CHECK(parsed(row.name, {}, {{"PET_" + upper(row.name), row.good}}) == expected);
    if (is_flag(row)) CHECK(parsed(row.name, {}, {{"PET_" + upper(row.name), "0"}}) == "false");
    if (!is_flag(row)) {
      const auto both = parsed(row.name, {"--" + row.name, row.good}, {{"PET_" + upper(row.name), row.fallback}});
      CHECK(both == expected);
    }
  }
}

TEST_CASE("a bad value of an option of torchrun is named, from the command line and from the environment") {
  for (const auto& row : rows()) {
    if (row.bad.empty()) continue;
    INFO(row.name);
    const auto by_variable = error_of(row, {}, {{"PET_" + upper(row.name), row.bad}});
    CHECK(by_variable != "no error");
    CHECK(by_variable.ends_with(row.complaint));
    if (is_flag(row)) continue;
    const auto by_option = error_of(row, {"--" + dashed(row.name) + "=" + row.bad});
    CHECK(by_option != "no error");
    if (!row.complaint.empty()) CHECK(by_option == "--" + row.name + row.complaint);
  }
}

TEST_CASE("the shortest unique prefixes of torchrun's options mean these options") {
  std::vector<std::string> names{"help", "logs_specs", "run_path"};
  for (const auto& row : rows()) names.push_back(row.name);
  const auto unique = [&](const std::string& prefix) {
    return std::count_if(names.begin(), names.end(), [&](const auto& name) { return name.starts_with(prefix); }) == 1;
  };
  const LaunchSettings settings;
  for (const auto& row : rows()) {
    INFO(row.name);
    std::size_t length = 1;
    while (length < row.name.size() && !unique(row.name.substr(0, length))) ++length;
    const auto prefix = dashed("--" + row.name.substr(0, length));
    const auto expected = "--" + row.name + (is_flag(row) ? "" : "=" + row.good);
    const Words words = is_flag(row) ? Words{prefix, "x"} : Words{prefix, row.good, "x"};
    CHECK(normal_form(words, settings.options_and_pages()).options == Words{expected});
  }
}

TEST_CASE("options that need Python in the launcher are refused with a reason") {
  CHECK_THROWS_WITH(value_of("nnodes", {"--run-path"}),
                    "--run_path runs the script inside the launcher's own Python interpreter, and ddprun has none; "
                    "leave it out, the script then runs in its own Python process");
  CHECK_THROWS_WITH(value_of("nnodes", {}, {{"PET_RUN_PATH", "1"}}),
                    Catch::StartsWith("PET_RUN_PATH: --run_path runs the script inside"));
  CHECK_NOTHROW(value_of("nnodes", {}, {{"PET_RUN_PATH", "0"}}));  // off
  CHECK_THROWS_WITH(value_of("nnodes", {"--logs-specs=p"}),
                    "--logs_specs names a plugin written in Python, and ddprun has no interpreter; use --log_dir, "
                    "--redirects, --tee and the filters instead");
  CHECK_THROWS_WITH(value_of("nnodes", {"--rdzv-backend=etcd-v2"}),
                    "--rdzv_backend: launch.rdzv_backend = etcd-v2: it uses version 2 of etcd's interface, which "
                    "etcd has dropped; c10d needs no etcd");
}

TEST_CASE("options that exclude each other, and missing devices, are errors") {
  CHECK_THROWS_WITH(value_of("module", {"--module", "--no-python"}), "--module needs Python: it excludes --no_python");
  CHECK_THROWS_WITH(value_of("nnodes", {"--virtual-local-rank", "--nproc-per-node=2"}, {{"CUDA_VISIBLE_DEVICES", "3"}}),
                    "--virtual_local_rank: CUDA_VISIBLE_DEVICES = 3 has no device for local rank 1");
  CHECK_THROWS_WITH(value_of("nnodes", {"--nproc-per-node=xpu"}, {{"ZE_AFFINITY_MASK", "-"}}),
                    "--nproc_per_node = xpu: Xpu is not available: this machine shows no Intel GPU");
}

TEST_CASE("options without an effect are logged") {
  const auto lines_of = [](Words arguments) {
    LaunchSettings settings;
    arguments.emplace_back("/bin/true");
    const auto line = parse_command_line(arguments, settings);
    const auto spec = make_agent_spec(settings, choose_rendezvous(settings, {}), {}, line.command, "/nonexistent");
    return options_without_effect(settings, spec);
  };
  CHECK(lines_of({}).empty());
  CHECK(lines_of({"--start_method=fork"}).size() == 1);
  CHECK(lines_of({"--duplicate_stdout_filters=a"}) ==
        Words{"the duplicate filters have no effect: they see only lines of --tee"});
  CHECK(lines_of({"--duplicate_stdout_filters=a", "--tee=1"}).empty());
  CHECK(lines_of({"--duplicate_stdout_filters=a", "--tee=1", "--log_dir=/dev/null"}).size() == 1);
}
