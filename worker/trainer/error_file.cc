#include "ddprun/worker/trainer/error_file.h"

#include <boost/json.hpp>

#include "ddprun/common/atomic_file.h"

namespace ddprun::trainer {

void write_error_file(const std::filesystem::path& path, const std::string& message, std::int64_t timestamp,
                      bool consequence) {
  namespace json = boost::json;
  json::object extra{{"py_callstack", message}, {"timestamp", std::to_string(timestamp)}};
  if (consequence) extra["consequence"] = true;
  const json::object file{{"message", json::object{{"message", message}, {"extraInfo", extra}}}};
  write_file_atomically(path, json::serialize(file));
}

}  // namespace ddprun::trainer
