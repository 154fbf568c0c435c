#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ddprun/launcher/output/console.h"
#include "ddprun/launcher/output/line_prefix.h"
#include "ddprun/launcher/output/stream_spec.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct OutputSpec {
  std::string role = "default";
  std::string host;  // for ${hostname} in the prefix
  int nproc = 1;
  StreamSpec redirects;                // to files only
  StreamSpec tee;                      // to files and to the terminal
  std::optional<std::set<int>> shown;  // local ranks that the console shows; unset: all
  std::string prefix{default_line_prefix};
  std::vector<std::string> out_filters;  // tee'd lines with any of these go to one more file
  std::vector<std::string> err_filters;
};

// Where one attempt's output goes and what it is called.
struct OutputAttempt {
  int first_rank = 0;            // the global rank of local rank 0
  std::filesystem::path folder;  // for what concerns all workers; empty: no files
};

// The output of a node's workers in one attempt: from pipes to the console and to files. With more than one worker,
// lines on the console are whole and begin with the prefix; a single worker's pass as they are, and its standard output
// is this process's own. Files get the bytes as they came, but for filtered_stdout.log and filtered_stderr.log, which
// have lines of all workers. The end of each worker's standard error is kept, also of one that is not shown.
//
// Where the console is a terminal, so is what the worker gets (a pseudo-terminal instead of a pipe): programs draw
// their progress bars and use colours as if they were alone. A worker's bar stands below the lines, prefix in front.
//
// When the console is full, nothing more is read until there is room: the workers wait, not this process.
// Single-threaded, on the loop of the io_context; room() may be called from any thread.
class OutputRouter {
 public:
  OutputRouter(boost::asio::io_context& loop, Console& console, OutputSpec spec, OutputAttempt attempt = {});
  ~OutputRouter();
  OutputRouter(const OutputRouter&) = delete;
  OutputRouter& operator=(const OutputRouter&) = delete;

  // What the worker gets as standard output and error; -1: this process's own. Valid until started().
  struct Descriptors {
    int out = -1;
    int err = -1;
  };
  // folder: of this worker's logs, empty when there are none. Throws Errc::io when a file cannot be opened.
  Descriptors open(int local_rank, const std::filesystem::path& folder);
  // The worker just opened for has been started and holds its ends: they are closed here.
  void started();

  // The console's terminal has another size: the workers' get it too. False when none of them has one.
  bool window_changed();

  // The end of the worker's standard error, everything that is in its pipe by now included.
  std::string last_lines(int local_rank);
  // No worker of the attempt is left: takes what is still in the pipes, lines without an end too, and closes all.
  void finish();
  // The console has room again.
  void room();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
