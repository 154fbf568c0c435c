#include "worker/trainer/report/metrics.h"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/ranges.h>

#include "common/io_error.h"

namespace ddprun::trainer {
namespace {

namespace json = boost::json;

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

enum class Line { earlier, later, other, broken };  // other: a line without a step

// Classifies a record as a run that resumes at last_step sees it.
Line kind_of(std::string_view line, std::int64_t last_step) {
  json::error_code status;
  const auto value = json::parse({line.data(), line.size()}, status);
  if (status || !value.is_object()) return Line::broken;
  const auto* step = value.get_object().if_contains("step");
  if (!step) return Line::other;
  if (!step->is_int64()) return Line::broken;
  return step->get_int64() <= last_step ? Line::earlier : Line::later;
}

bool belongs(std::string_view line, std::int64_t last_step) {
  const auto kind = kind_of(line, last_step);
  return kind == Line::earlier || kind == Line::other;
}

// Returns the beginning of the last record of a step up to last_step.
std::optional<std::size_t> last_earlier(std::string_view text, std::int64_t last_step) {
  std::optional<std::size_t> last;
  std::size_t begin = 0;
  for (std::size_t newline; (newline = text.find('\n', begin)) != std::string_view::npos; begin = newline + 1)
    if (kind_of(text.substr(begin, newline - begin), last_step) == Line::earlier) last = begin;
  return last;
}

std::string read_from(int fd, std::size_t begin, std::size_t end) {
  std::string text(end - begin, '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const auto n = ::pread(fd, text.data() + got, text.size() - got, static_cast<off_t>(begin + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

// metrics_up_to() for a file, of whose end it reads only as much as it has to: steps ascend.
std::size_t kept_bytes(int fd, std::size_t size, std::int64_t last_step) {
  constexpr std::size_t first_block = 65536;
  for (std::size_t block = first_block; block < size; block *= 4) {
    const auto begin = size - block;
    const auto text = read_from(fd, begin, size);
    const auto line = text.find('\n') + 1;  // the beginning of the first whole one; 0 if there is none
    const auto rest = std::string_view(text).substr(line);
    if (const auto at = line > 0 ? last_earlier(rest, last_step) : std::nullopt)
      return begin + line + *at + metrics_up_to(rest.substr(*at), last_step).size();
  }
  return metrics_up_to(read_from(fd, 0, size), last_step).size();
}

}  // namespace

std::string to_json(const StepRecord& r) {
  auto text = fmt::format(
      R"({{"step": {}, "epoch": {}, "loss": {}, "lr": {}, "samples_per_s": {:.1f}, "compute": {:.4f}, "wait": {:.4f})",
      r.step, r.epoch, number(r.loss), number(r.lr), r.samples_per_s, r.compute, r.wait);
  if (r.grad_norm) text += fmt::format(R"(, "grad_norm": {})", number(*r.grad_norm));
  if (r.loss_scale) text += fmt::format(R"(, "loss_scale": {})", number(*r.loss_scale));
  if (r.loss_scale || r.skipped_steps > 0) text += fmt::format(R"(, "skipped_steps": {})", r.skipped_steps);
  if (r.experts)
    text += fmt::format(R"(, "expert_load": {}, "dropped": {})", number(r.experts->load), number(r.experts->dropped));
  if (r.bytes_sent > 0) text += fmt::format(R"(, "bytes_sent": {})", r.bytes_sent);
  if (!r.staleness.empty()) text += fmt::format(R"(, "staleness": [{}])", fmt::join(r.staleness, ", "));
  return text + "}";
}

std::string to_json(const EvalRecord& r) {
  auto text = fmt::format(R"({{"epoch": {}, "eval_loss": {}, "accuracy": {})", r.epoch, number(r.eval_loss),
                          r.accuracy ? number(*r.accuracy) : "null");
  for (const auto& [name, value] : r.others) text += fmt::format(R"(, "{}": {})", name, number(value));
  return text + "}";
}

std::string_view metrics_up_to(std::string_view text, std::int64_t last_step) {
  if (last_step == 0) return {};
  std::size_t end = 0;
  for (std::size_t newline; (newline = text.find('\n', end)) != std::string_view::npos; end = newline + 1) {
    if (!belongs(text.substr(end, newline - end), last_step)) break;
  }
  return text.substr(0, end);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t last_step) : path_(path) {
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (!fd_) throw_io_error("open", path_);
  if (!std::filesystem::is_regular_file(path)) return;  // a pipe or /dev/stdout holds no earlier records
  is_file_ = true;
  cut(last_step == 0 ? 0 : kept_bytes(fd_.get(), size(), last_step));
}

std::size_t MetricsFile::size() const {
  return is_file_ ? static_cast<std::size_t>(::lseek(fd_.get(), 0, SEEK_END)) : 0;
}

void MetricsFile::cut(std::size_t size) {
  if (is_file_ && ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) throw_io_error("cut", path_);
}

void MetricsFile::add_line(const std::string& line) {
  const auto whole = line + "\n";
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", path_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void MetricsFile::flush() {
  if (::fsync(fd_.get()) != 0 && errno != EINVAL) throw_io_error("flush", path_);  // EINVAL: a pipe
}

}  // namespace ddprun::trainer
