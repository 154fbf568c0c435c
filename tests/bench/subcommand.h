#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace ddprun::bench {

// One benchmark of ddprun-bench. Adding one: a file that defines such a function, its line in CMakeLists.txt, its row
// in main.cc.
//
// The function declares its options on the subcommand that it gets and returns the function that runs it once
// they are parsed. run gets whether --json was given: then it prints one JSON object a line on standard
// output, otherwise a table for people. A default run ends within 20 s, or a minute where peers take seconds
// each.
using Run = std::function<void(bool json)>;
using MakeSubcommand = Run (*)(CLI::App& subcommand);

Run collectives_bench(CLI::App& subcommand);
Run failure_bench(CLI::App& subcommand);
Run flood_bench(CLI::App& subcommand);
Run hooks_link_bench(CLI::App& subcommand);
Run hosts_bench(CLI::App& subcommand);
Run launch_bench(CLI::App& subcommand);
Run mpi_bench(CLI::App& subcommand);
Run page_bench(CLI::App& subcommand);
Run parallel_bench(CLI::App& subcommand);
Run pipeline_bench(CLI::App& subcommand);
Run recovery_bench(CLI::App& subcommand);
Run rendezvous_bench(CLI::App& subcommand);
Run restart_bench(CLI::App& subcommand);
Run store_bench(CLI::App& subcommand);
Run train_bench(CLI::App& subcommand);
Run train_step_bench(CLI::App& subcommand);
Run trust_bench(CLI::App& subcommand);
Run uneven_ranks_bench(CLI::App& subcommand);

}  // namespace ddprun::bench
