#include "launcher/output/output.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <optional>
#include <unistd.h>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "common/bounded_file.h"
#include "common/error.h"
#include "common/pipe.h"
#include "common/unique_fd.h"
#include "launcher/output/line_assembler.h"
#include "launcher/output/log_folder.h"
#include "launcher/output/pseudo_terminal.h"
#include "launcher/output/terminal_text.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// One captured stream of one worker.
struct Capture {
  Capture(asio::io_context& loop, Console::Stream to_stream) : reader(loop), to(to_stream) {}

  asio::posix::stream_descriptor reader;
  Console::Stream to;
  int local_rank = 0;
  int source = 0;       // identifies its bars to the console
  bool shown = true;    // shown on the console
  bool direct = false;  // goes to this process's own stream: it breaks when that does
  bool terminal = false;
  std::string prefix;
  std::variant<std::monostate, LineAssembler, TerminalLines> lines;  // monostate: bytes are passed on unchanged
  std::optional<LogFile> copy;
  std::optional<LineFilter> filter;
  std::shared_ptr<LogFile> filtered;  // set when filter is
  Tail tail;
  bool waiting = false;
};

// The console's window, narrower by the width of the prefix.
WindowSize window_of_worker(WindowSize window, std::string_view prefix) {
  return {.columns = std::max(1, window.columns - static_cast<int>(columns_of(prefix))), .rows = window.rows};
}

// The size is at least what any pipe or pseudo-terminal holds.
constexpr std::size_t pipe_capacity = std::size_t{128} * 1024;

}  // namespace

struct OutputRouter::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& loop_, Console& console_, OutputSpec spec_, OutputAttempt attempt_)
      : loop(loop_), console(console_), spec(std::move(spec_)), attempt(std::move(attempt_)) {}

  asio::io_context& loop;
  Console& console;
  OutputSpec spec;
  OutputAttempt attempt;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<int, std::map<Console::Stream, std::shared_ptr<Capture>>> seen;  // by local rank
  std::map<int, std::map<Console::Stream, std::filesystem::path>> unseen;   // also by local rank
  std::map<Console::Stream, std::shared_ptr<LogFile>> filtered;
  std::vector<UniqueFd> worker_ends;

  int to_file(const std::filesystem::path& file);
  void add_filter(Capture& stream);
  int open_stream(int local_rank, Console::Stream stream, const std::filesystem::path& file);
  std::string prefix_of(int local_rank) const;
  std::shared_ptr<Capture> capture(Console::Stream stream, std::string prefix, bool shown);
  void set_prefix(Capture& stream, const std::string& prefix) const;
  void watch(const std::shared_ptr<Capture>& stream);
  std::size_t read_some(Capture& stream);
  void forward(Capture& stream, std::string_view bytes);
  void close(Capture& stream);
};

int OutputRouter::Impl::to_file(const std::filesystem::path& file) {
  worker_ends.push_back(open_log_file(file));
  return worker_ends.back().get();
}

// Decides where one stream goes. Returns the worker's descriptor, -1 for this process's own.
int OutputRouter::Impl::open_stream(int local_rank, Console::Stream stream, const std::filesystem::path& file) {
  const bool is_err = stream == Console::Stream::err;
  const auto selects = [&](const StreamSpec& streams) {
    const auto chosen = streams.of(local_rank);
    return is_err ? chosen.err : chosen.out;
  };
  const bool shown = !spec.shown || spec.shown->contains(local_rank);
  const bool tee = selects(spec.tee) && shown;
  if ((selects(spec.redirects) || selects(spec.tee)) && !tee) {
    unseen[local_rank][stream] = file;
    return to_file(file);
  }
  const bool alone = shown && spec.nproc == 1 && !tee && !is_err;
  if (alone && console.is_terminal(stream)) {
    unseen[local_rank][stream] = "";
    return -1;
  }
  const bool prefixed = shown && (spec.nproc > 1 || tee);
  const auto captured = capture(stream, prefixed ? prefix_of(local_rank) : "", shown);
  captured->local_rank = local_rank;
  captured->direct = alone;
  captured->source = 2 * local_rank + (is_err ? 1 : 0);
  if (tee && file != "/dev/null") captured->copy.emplace(file);
  if (tee) add_filter(*captured);
  seen[local_rank][stream] = captured;
  watch(captured);
  return worker_ends.back().get();
}

std::string OutputRouter::Impl::prefix_of(int local_rank) const {
  return line_prefix(
      spec.prefix,
      {.role = spec.role, .local_rank = local_rank, .rank = attempt.first_rank + local_rank, .host = spec.host});
}

void OutputRouter::Impl::set_prefix(Capture& stream, const std::string& prefix) const {
  if (stream.prefix.empty()) return;
  stream.prefix = prefix;
  if (auto* lines = std::get_if<LineAssembler>(&stream.lines)) lines->set_prefix(prefix);
  if (auto* lines = std::get_if<TerminalLines>(&stream.lines)) lines->set_prefix(prefix);
  if (stream.filter) stream.filter->set_prefix(prefix);
}

void OutputRouter::Impl::add_filter(Capture& stream) {
  const bool is_err = stream.to == Console::Stream::err;
  const auto& texts = is_err ? spec.err_filters : spec.out_filters;
  if (texts.empty() || attempt.folder.empty()) return;
  auto& file = filtered[stream.to];
  if (!file)
    file = std::make_shared<LogFile>(attempt.folder / (is_err ? "filtered_stderr.log" : "filtered_stdout.log"));
  stream.filter.emplace(texts, stream.prefix);
  stream.filtered = file;
}

std::shared_ptr<Capture> OutputRouter::Impl::capture(Console::Stream stream, std::string prefix, bool shown) {
  auto captured = std::make_shared<Capture>(loop, stream);
  captured->shown = shown;
  const auto window = shown ? console.window(stream) : std::nullopt;
  Pipe ends;
  if (window) {
    if (auto terminal = PseudoTerminal::open(window_of_worker(*window, prefix))) {
      captured->terminal = true;
      ends = {std::move(terminal->master), std::move(terminal->worker_end)};
    }
  }
  if (!ends.reader) ends = make_pipe("a pipe for a worker");
  if (!prefix.empty() && window) captured->lines.emplace<TerminalLines>(prefix);
  if (!prefix.empty() && !window) captured->lines.emplace<LineAssembler>(prefix);
  captured->prefix = std::move(prefix);
  worker_ends.push_back(std::move(ends.writer));
  captured->reader.assign(ends.reader.release());
  captured->reader.native_non_blocking(true);
  std::erase_if(captures, [](const auto& each) { return !each->reader.is_open(); });  // those of replaced workers
  captures.push_back(captured);
  return captured;
}

void OutputRouter::Impl::watch(const std::shared_ptr<Capture>& stream) {
  if (stream->waiting || !stream->reader.is_open() || console.full()) return;
  stream->waiting = true;
  stream->reader.async_wait(asio::posix::descriptor_base::wait_read,
                            [self = shared_from_this(), stream](boost::system::error_code failure) {
                              stream->waiting = false;
                              if (failure || !stream->reader.is_open()) return;
                              self->read_some(*stream);
                              self->watch(stream);
                            });
}

// Reads at most one block without waiting and forwards it. Returns its size. Closes the stream at its end, which a
// pseudo-terminal without writers reports as EIO.
std::size_t OutputRouter::Impl::read_some(Capture& stream) {
  char block[64 * 1024];
  ssize_t got = 0;
  do got = ::read(stream.reader.native_handle(), block, sizeof(block));
  while (got < 0 && errno == EINTR);
  if (got > 0) {
    forward(stream, {block, static_cast<std::size_t>(got)});
    if (stream.direct && console.reader_gone(stream.to)) close(stream);  // the worker notices it, as without ddprun
    return static_cast<std::size_t>(got);
  }
  if (got == 0 || errno != EAGAIN) close(stream);
  return 0;
}

void OutputRouter::Impl::forward(Capture& stream, std::string_view bytes) {
  if (spec.seen) spec.seen(attempt.first_rank + stream.local_rank, stream.to, bytes);
  stream.tail.feed(bytes);
  if (stream.copy) stream.copy->write(bytes);
  std::string text;
  if (stream.filter) {
    stream.filter->feed(bytes, text);
    stream.filtered->write(text);
    text.clear();
  }
  if (!stream.shown) return;
  if (auto* terminal = std::get_if<TerminalLines>(&stream.lines)) {
    terminal->feed(bytes, text);
    return console.update(stream.to, stream.source, std::move(text), terminal->bars());
  }
  if (auto* lines = std::get_if<LineAssembler>(&stream.lines))
    lines->feed(bytes, text);
  else
    text = bytes;
  console.write(stream.to, std::move(text));
}

void OutputRouter::Impl::close(Capture& stream) {
  std::string text;
  if (stream.filter) {
    stream.filter->flush(text);
    stream.filtered->write(text);
    text.clear();
  }
  if (auto* terminal = std::get_if<TerminalLines>(&stream.lines)) {
    terminal->flush(text);
    console.update(stream.to, stream.source, std::move(text), "");
  } else if (auto* lines = std::get_if<LineAssembler>(&stream.lines)) {
    lines->flush(text);
    console.write(stream.to, std::move(text));
  }
  boost::system::error_code ignored;
  stream.reader.close(ignored);
}

OutputRouter::OutputRouter(asio::io_context& loop, Console& console, OutputSpec spec, OutputAttempt attempt)
    : impl_(std::make_shared<Impl>(loop, console, std::move(spec), std::move(attempt))) {}

OutputRouter::~OutputRouter() {
  for (const auto& stream : impl_->captures) {
    boost::system::error_code ignored;
    stream->reader.close(ignored);
  }
}

OutputRouter::Descriptors OutputRouter::open(int local_rank, const std::filesystem::path& folder) {
  const auto file = [&](const char* name) {
    return folder.empty() ? std::filesystem::path("/dev/null") : folder / name;
  };
  Descriptors result;
  result.out = impl_->open_stream(local_rank, Console::Stream::out, file("stdout.log"));
  result.err = impl_->open_stream(local_rank, Console::Stream::err, file("stderr.log"));
  return result;
}

void OutputRouter::started() {
  impl_->worker_ends.clear();
}

std::vector<UnseenStream> OutputRouter::unseen(int local_rank) const {
  std::vector<UnseenStream> streams;
  if (const auto found = impl_->unseen.find(local_rank); found != impl_->unseen.end())
    for (const auto& [stream, file] : found->second) streams.push_back({stream, file});
  return streams;
}

OutputRouter::Recent OutputRouter::recent(int local_rank) const {
  constexpr int most_lines = 100;
  Recent recent;
  const auto of = [&](Console::Stream stream) -> auto& {
    return stream == Console::Stream::err ? recent.err : recent.out;
  };
  if (const auto found = impl_->seen.find(local_rank); found != impl_->seen.end())
    for (const auto& [stream, capture] : found->second) of(stream) = capture->tail.lines(most_lines);
  for (const auto& each : unseen(local_rank))
    if (!each.file.empty())
      of(each.stream) = Tail::last_lines(read_end_of_file(each.file, Tail::max_bytes), most_lines);
  return recent;
}

std::string OutputRouter::last_lines(int local_rank) {
  for (const auto& each : unseen(local_rank))
    if (each.stream == Console::Stream::err) return Tail::last_lines(read_end_of_file(each.file, Tail::max_bytes));
  const auto found = impl_->seen.find(local_rank);
  if (found == impl_->seen.end() || !found->second.contains(Console::Stream::err)) return {};
  auto& stream = *found->second.at(Console::Stream::err);
  // The loop is bounded by the pipe's capacity, since a child of the worker may continue to write.
  for (std::size_t bytes = 0; bytes < pipe_capacity && stream.reader.is_open();) {
    const auto got = impl_->read_some(stream);
    if (got == 0) break;
    bytes += got;
  }
  return stream.tail.lines();
}

void OutputRouter::renumber(int first_rank) {
  impl_->attempt.first_rank = first_rank;
  for (const auto& stream : impl_->captures) impl_->set_prefix(*stream, impl_->prefix_of(stream->local_rank));
}

bool OutputRouter::window_changed() {
  bool any = false;
  for (const auto& stream : impl_->captures) {
    const auto window = impl_->console.window(stream->to);
    if (!stream->terminal || !stream->reader.is_open() || !window) continue;
    set_window_size(stream->reader.native_handle(), window_of_worker(*window, stream->prefix));
    any = true;
  }
  return any;
}

void OutputRouter::finish() {
  for (const auto& stream : impl_->captures) {
    while (stream->reader.is_open() && impl_->read_some(*stream) > 0) continue;
    if (stream->reader.is_open()) impl_->close(*stream);
  }
}

void OutputRouter::resume() {
  asio::post(impl_->loop, [weak = std::weak_ptr<Impl>(impl_)] {
    if (const auto self = weak.lock())
      for (const auto& stream : self->captures) self->watch(stream);
  });
}

}  // namespace ddprun
