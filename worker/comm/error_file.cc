#include "worker/comm/error_file.h"

#include <ctime>
#include <exception>

#include <boost/json.hpp>

#include "common/atomic_file.h"
#include "common/environment.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/printable.h"
#include "common/process_limits.h"

namespace ddprun {
namespace {

void try_write_error_file(const std::filesystem::path& path, const std::string& message,
                          FailureKind kind = FailureKind::failure) noexcept {
  if (path.empty()) return;
  try {
    write_error_file(path, message, std::time(nullptr), kind);
  } catch (const std::exception& e) {
    log::warn("cannot write the error file: {}", e.what());
  }
}

std::string text_of(const std::exception_ptr& exception) {
  if (!exception) return "std::terminate was called";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

// State of the terminate handler, which takes no argument.
struct AtTerminate {
  std::filesystem::path path;
  std::terminate_handler previous = nullptr;
};
AtTerminate& at_terminate() {
  static AtTerminate instance;
  return instance;
}

}  // namespace

void write_error_file(const std::filesystem::path& path, const std::string& message, std::int64_t timestamp,
                      FailureKind kind) {
  namespace json = boost::json;
  json::object extra{{"py_callstack", message}, {"timestamp", std::to_string(timestamp)}};
  if (kind == FailureKind::consequence) extra["consequence"] = true;
  if (kind == FailureKind::usage_error) extra["usage_error"] = true;
  const json::object file{{"message", json::object{{"message", message}, {"extraInfo", extra}}}};
  write_file_atomically(path, valid_json(json::serialize(file)));
}

bool is_consequence(Errc code) {
  return code == Errc::peer_lost || code == Errc::connection_lost || code == Errc::aborted;
}

void write_error_file_at_terminate(const std::filesystem::path& path) {
  if (path.empty()) return;
  at_terminate().path = path;
  const auto previous = std::set_terminate([] {
    try_write_error_file(at_terminate().path, text_of(std::current_exception()));
    at_terminate().previous();
  });
  if (!at_terminate().previous) at_terminate().previous = previous;
}

int record(const std::function<void()>& body) {
  const std::filesystem::path path = Environment::capture().get("TORCHELASTIC_ERROR_FILE").value_or("");
  write_error_file_at_terminate(path);
  try {
    body();
    return exit_success;
  } catch (const Error& e) {
    log::error("{}", e.what());
    try_write_error_file(path, e.what(), is_consequence(e.code()) ? FailureKind::consequence : FailureKind::failure);
    return exit_for(e.code());
  } catch (const std::exception& e) {
    log::error("{}", exception_text(e));
    try_write_error_file(path, exception_text(e));
    return exit_fault;
  }
}

}  // namespace ddprun
