#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "common/error.h"
#include "common/printable.h"
#include "worker/checkpoint/json_parser.h"

namespace ddprun::checkpoint {

// An object in a JSON file, whose members are read one by one. Every error is Errc::io and names the source and member.
class JsonObject {
 public:
  // value and source must outlive this object.
  JsonObject(const boost::json::value& value, const std::string& source) : source_(source) {
    if (!value.is_object()) throw make_error(Errc::io, "{}: not a JSON object", source);
    object_ = &value.get_object();
  }

  bool has(std::string_view name) const { return object_->contains(name); }
  template <class T>
  T number(std::string_view name) const {
    boost::json::error_code status;
    const auto number = member(name).to_number<T>(status);
    if (status) throw make_error(Errc::io, "{}: member {} is not a number in range", source_, name);
    return number;
  }
  std::string text(std::string_view name) const {
    const auto* text = member(name).if_string();
    if (!text) throw make_error(Errc::io, "{}: member {} is not a text", source_, name);
    return std::string(*text);
  }
  bool flag(std::string_view name) const {
    const auto* flag = member(name).if_bool();
    if (!flag) throw make_error(Errc::io, "{}: member {} is neither true nor false", source_, name);
    return *flag;
  }
  const boost::json::array& list(std::string_view name) const {
    const auto* array = member(name).if_array();
    if (!array) throw make_error(Errc::io, "{}: member {} is not a list", source_, name);
    return *array;
  }
  template <class T = double>
  std::vector<T> numbers(std::string_view name) const {
    std::vector<T> all;
    for (const auto& value : list(name)) {
      boost::json::error_code status;
      all.push_back(value.to_number<T>(status));
      if (status) throw make_error(Errc::io, "{}: member {} is not a list of numbers", source_, name);
    }
    return all;
  }
  const boost::json::object& object(std::string_view name) const {
    const auto* object = member(name).if_object();
    if (!object) throw make_error(Errc::io, "{}: member {} is not an object", source_, name);
    return *object;
  }
  std::map<std::string, std::string> texts(std::string_view name) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : object(name)) {
      const auto* text = entry.value().if_string();
      if (!text)
        throw make_error(Errc::io, "{}: {}.{} is not a text", source_, name, printable(std::string_view(entry.key())));
      all.emplace(entry.key(), std::string_view(*text));
    }
    return all;
  }

 private:
  const boost::json::value& member(std::string_view name) const {
    const auto* found = object_->if_contains(name);
    if (!found) throw make_error(Errc::io, "{}: member {} is missing", source_, name);
    return *found;
  }

  const std::string& source_;
  const boost::json::object* object_ = nullptr;
};

}  // namespace ddprun::checkpoint
