#include "ddprun/worker/checkpoint/manifest.h"

#include <boost/json.hpp>

#include "ddprun/common/error.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::string_view format_name = "ddprun checkpoint";
constexpr std::int64_t format_version = 1;

FileDigest digest_from_json(const json::value& value) {
  const auto& object = value.as_object();
  return {object.at("bytes").to_number<std::uint64_t>(), std::string(object.at("sha256").as_string())};
}

Manifest read(const json::object& all, const std::string& source) {
  if (all.at("format").as_string() != json::string_view(format_name.data(), format_name.size()) ||
      all.at("version").to_number<std::int64_t>() != format_version)
    throw make_error(Errc::io, "{}: not a manifest of version {}", source, format_version);
  Manifest manifest;
  manifest.step = all.at("step").to_number<std::int64_t>();
  for (const auto& entry : all.at("files").as_object()) {
    const std::string name(entry.key());
    if (name.find('/') != std::string::npos) throw make_error(Errc::io, "{}: '{}' is no file name", source, name);
    manifest.files.emplace(name, digest_from_json(entry.value()));
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  json::object files;
  for (const auto& [name, digest] : manifest.files)
    files[name] = json::object{{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  const json::object all{
      {"format", format_name}, {"version", format_version}, {"step", manifest.step}, {"files", files}};
  return json::serialize(all) + "\n";
}

Manifest manifest_from_json(std::string_view text, const std::string& source) {
  try {
    return read(json::parse({text.data(), text.size()}).as_object(), source);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw make_error(Errc::io, "{}: malformed: {}", source, e.what());
  }
}

}  // namespace ddprun::checkpoint
