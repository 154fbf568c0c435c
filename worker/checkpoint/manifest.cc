#include "worker/checkpoint/manifest.h"

#include "worker/checkpoint/json_object.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::string_view format_name = "ddprun checkpoint";
constexpr std::int64_t whole_version = 1;  // model and optimizer have a file each
constexpr std::int64_t parts_version = 2;  // they lie in parts of ranks

FileDigest digest_from_json(const json::value& value, const std::string& source) {
  const JsonObject in(value, source);
  return {in.number<std::uint64_t>("bytes"), in.text("sha256")};
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  json::object files;
  for (const auto& [name, digest] : manifest.files)
    files[name] = json::object{{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  const json::object all{{"format", format_name},
                         {"version", manifest.has_parts ? parts_version : whole_version},
                         {"step", manifest.step},
                         {"files", files}};
  return json::serialize(all) + "\n";
}

Manifest manifest_from_json(std::string_view text, const std::string& source) {
  const auto value = parse_json(text, source);
  const JsonObject in(value, source);
  const auto version = in.text("format") == format_name ? in.number<std::int64_t>("version") : 0;
  if (version != whole_version && version != parts_version)
    throw make_error(Errc::io, "{}: not a manifest of version {} or {}", source, whole_version, parts_version);
  Manifest manifest;
  manifest.has_parts = version == parts_version;
  manifest.step = in.number<std::int64_t>("step");
  if (manifest.step < 0)
    throw make_error(Errc::io, "{}: member step is {}, expected at least 0", source, manifest.step);
  for (const auto& entry : in.object("files")) {
    const std::string name(entry.key());
    if (name.find('/') != std::string::npos)
      throw make_error(Errc::io, "{}: '{}' is not a file name", source, printable(name));
    manifest.files.emplace(name, digest_from_json(entry.value(), source));
  }
  return manifest;
}

}  // namespace ddprun::checkpoint
