#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/console.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/stream_spec.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// A stream of a worker that does not pass through this process.
struct UnseenStream {
  Console::Stream stream = Console::Stream::out;
  std::filesystem::path file{};  // its file; empty: this process's own terminal
};

struct OutputSpec {
  std::string role = "default";
  std::string host;  // for ${hostname} in the prefix
  int nproc = 1;
  StreamSpec redirects;                // streams that go to files only
  StreamSpec tee;                      // streams that go to files and to the console
  std::optional<std::set<int>> shown;  // local ranks that the console shows; unset: all
  std::string prefix{default_line_prefix};
  std::vector<std::string> out_filters;  // tee'd lines that contain any of these are copied to one more file
  std::vector<std::string> err_filters;
  // Called with all that this process reads of a worker, given its rank in the job; may be empty.
  std::function<void(int rank, Console::Stream stream, std::string_view bytes)> seen{};
};

// Ranks and log folder of one attempt.
struct OutputAttempt {
  int first_rank = 0;            // the global rank of local rank 0
  std::filesystem::path folder;  // for files that concern all workers; empty: no files
};

// Routes the output of a node's workers in one attempt from pipes to the console and to files. With several workers the
// console shows whole lines, each with the prefix; the output of a single worker is passed on unchanged, and where this
// process's standard output is a terminal, it is the worker's as well. Files get the bytes unchanged, except
// filtered_stdout.log and filtered_stderr.log, which hold whole lines of all workers. The end of each worker's standard
// error is kept, also of workers that the console does not show.
//
// Where the console is a terminal, the worker gets a pseudo-terminal instead of a pipe, so that programs draw progress
// bars and use colours as they would without ddprun. A worker's bars are drawn below the lines, with its prefix.
//
// While the console is full nothing is read, so that the workers block, but not this process.
//
// Ownership: owns the pipes and files; borrows the loop and the console, which must outlive it.
// Threads: single-threaded on the loop; resume() may be called from any thread.
// Errors: open() throws Errc::io. A log file that cannot be written later is given up with one logged error.
class OutputRouter {
 public:
  OutputRouter(boost::asio::io_context& loop, Console& console, OutputSpec spec, OutputAttempt attempt = {});
  ~OutputRouter();
  OutputRouter(const OutputRouter&) = delete;
  OutputRouter& operator=(const OutputRouter&) = delete;

  // The worker's standard output and standard error; -1 is this process's own. Valid until started().
  struct Descriptors {
    int out = -1;
    int err = -1;
  };
  // folder is where this worker's log files go; empty for no files. Throws Errc::io when a file cannot be opened.
  Descriptors open(int local_rank, const std::filesystem::path& folder);
  // Call once the worker of the last open() holds its descriptors: closes them in this process.
  void started();

  // The workers have other ranks in the job from now on: the prefix of their lines follows.
  void renumber(int first_rank);

  // The console's terminal was resized: resizes the workers' pseudo-terminals. Returns false when there are none.
  bool window_changed();

  // The streams of a worker that do not pass through this process.
  std::vector<UnseenStream> unseen(int local_rank) const;
  // The ends of a worker's output, at most a hundred lines and 16 KiB of each stream, as far as they pass through this
  // process or are in files; standard output that is this process's own is not known.
  struct Recent {
    std::optional<std::string> out, err;
  };
  Recent recent(int local_rank) const;
  // The end of the worker's standard error, including what its pipe holds now.
  std::string last_lines(int local_rank);
  // Call when no worker of the attempt is left: forwards what the pipes still hold, including lines without an end, and
  // closes everything.
  void finish();
  // Continues reading after the console was full.
  void resume();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
