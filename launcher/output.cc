#include "ddprun/launcher/output.h"

#include <cerrno>
#include <fcntl.h>
#include <map>
#include <optional>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "ddprun/common/log.h"
#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/line_assembler.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

UniqueFd open_log(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file) throw make_error(Errc::io, "cannot open the log file {}: {}", path.string(), errno_text(errno));
  return file;
}

// A file that a pipe is copied to. After a failed write (a full disk) it says so once and takes no more.
class LogCopy {
 public:
  explicit LogCopy(std::filesystem::path path) : path_(std::move(path)), file_(open_log(path_)) {}

  void write(std::string_view bytes) {
    while (file_ && !bytes.empty()) {
      const auto got = ::write(file_.get(), bytes.data(), bytes.size());
      if (got >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(got));
      } else if (errno != EINTR) {
        log::error("cannot write the log file {}: {}; it ends here", path_.string(), errno_text(errno));
        file_.reset();
      }
    }
  }

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

// One captured stream of one worker.
struct Capture {
  Capture(asio::io_context& loop, Console::Stream to_stream) : reader(loop), to(to_stream) {}

  asio::posix::stream_descriptor reader;
  UniqueFd worker_end;
  Console::Stream to;
  std::optional<LineAssembler> lines;  // none: bytes pass as they come
  std::optional<LogCopy> copy;
  Tail tail;
  bool waiting = false;
};

}  // namespace

struct OutputRouter::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& loop_, Console& console_, OutputSpec spec_)
      : loop(loop_), console(console_), spec(std::move(spec_)) {}

  asio::io_context& loop;
  Console& console;
  OutputSpec spec;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<int, std::shared_ptr<Capture>> errors;    // by local rank
  std::map<int, std::filesystem::path> error_files;  // standard error that goes to a file alone
  std::vector<UniqueFd> worker_ends;

  int open_stream(int local_rank, Console::Stream stream, const std::filesystem::path& file);
  std::shared_ptr<Capture> capture(Console::Stream stream);
  void watch(const std::shared_ptr<Capture>& stream);
  bool read_some(Capture& stream);
  void take(Capture& stream, std::string_view bytes);
  void close(Capture& stream);
};

// Decides where one stream goes. Returns the descriptor for the worker, -1 for this process's own.
int OutputRouter::Impl::open_stream(int local_rank, Console::Stream stream, const std::filesystem::path& file) {
  const auto picks = [&](const StreamSpec& streams) {
    const auto chosen = streams.of(local_rank);
    return stream == Console::Stream::out ? chosen.out : chosen.err;
  };
  const bool tee = picks(spec.tee);
  const bool to_file_alone = picks(spec.redirects) && !tee;
  if (to_file_alone) {
    worker_ends.push_back(open_log(file));
    if (stream == Console::Stream::err) error_files[local_rank] = file;
    return worker_ends.back().get();
  }
  const bool inherited = stream == Console::Stream::out && spec.nproc == 1 && !tee;
  if (inherited) return -1;
  const auto captured = capture(stream);
  if (tee && file != "/dev/null") captured->copy.emplace(file);
  if (spec.nproc > 1 || tee) captured->lines.emplace(fmt::format("[{}{}]:", spec.role, local_rank));
  if (stream == Console::Stream::err) errors[local_rank] = captured;
  watch(captured);
  return worker_ends.back().get();
}

std::shared_ptr<Capture> OutputRouter::Impl::capture(Console::Stream stream) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw make_error(Errc::io, "cannot make a pipe for a worker: {}", errno_text(errno));
  UniqueFd read_end(ends[0]);
  worker_ends.emplace_back(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  auto captured = std::make_shared<Capture>(loop, stream);
  captured->reader.assign(read_end.release());
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
                              if (self->read_some(*stream)) self->watch(stream);
                            });
}

// Reads what is there, at most one block, and passes it on. False at the end of the stream.
bool OutputRouter::Impl::read_some(Capture& stream) {
  char block[64 * 1024];
  const auto got = ::read(stream.reader.native_handle(), block, sizeof(block));
  if (got > 0) {
    take(stream, {block, static_cast<std::size_t>(got)});
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  close(stream);
  return false;
}

void OutputRouter::Impl::take(Capture& stream, std::string_view bytes) {
  if (stream.to == Console::Stream::err) stream.tail.feed(bytes);
  if (stream.copy) stream.copy->write(bytes);
  std::string text;
  if (stream.lines)
    stream.lines->feed(bytes, text);
  else
    text = bytes;
  console.write(stream.to, std::move(text));
}

void OutputRouter::Impl::close(Capture& stream) {
  if (stream.lines) {
    std::string text;
    stream.lines->flush(text);
    console.write(stream.to, std::move(text));
  }
  boost::system::error_code ignored;
  stream.reader.close(ignored);
}

OutputRouter::OutputRouter(asio::io_context& loop, Console& console, OutputSpec spec)
    : impl_(std::make_shared<Impl>(loop, console, std::move(spec))) {}

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

std::string OutputRouter::last_lines(int local_rank) {
  if (const auto file = impl_->error_files.find(local_rank); file != impl_->error_files.end()) {
    try {
      return Tail::last_lines(read_whole_file(file->second));
    } catch (const Error&) {
      return {};
    }
  }
  const auto found = impl_->errors.find(local_rank);
  if (found == impl_->errors.end()) return {};
  auto& stream = *found->second;
  // At most what a pipe holds: a child of the worker may go on writing.
  for (int blocks = 0; blocks < 2 && stream.reader.is_open(); ++blocks)
    if (!impl_->read_some(stream)) break;
  return stream.tail.lines();
}

void OutputRouter::finish() {
  for (const auto& stream : impl_->captures) {
    while (stream->reader.is_open()) {
      char block[64 * 1024];
      const auto got = ::read(stream->reader.native_handle(), block, sizeof(block));
      if (got > 0) {
        impl_->take(*stream, {block, static_cast<std::size_t>(got)});
      } else if (got == 0 || errno != EINTR) {
        impl_->close(*stream);
      }
    }
  }
}

void OutputRouter::room() {
  asio::post(impl_->loop, [weak = std::weak_ptr<Impl>(impl_)] {
    if (const auto self = weak.lock())
      for (const auto& stream : self->captures) self->watch(stream);
  });
}

}  // namespace ddprun
