#include "ddprun/worker/checkpoint/run_state.h"

#include "ddprun/worker/checkpoint/json_object.h"
#include "ddprun/worker/digest/sha256.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::int64_t format_version = 1;

}  // namespace

std::string config_digest(const std::map<std::string, std::string>& config) {
  Sha256 hash;
  for (const auto& [key, value] : config) hash.update(fmt::format("{}={}\n", key, value));
  return hash.hex();
}

std::string to_json(const RunState& s) {
  json::object config;
  for (const auto& [key, value] : s.config) config[key] = value;
  const json::object all{
      {"version", format_version},
      {"step", s.step},
      {"epoch", s.epoch},
      {"samples", s.samples},
      {"seed", s.seed},
      {"world_size", s.world_size},
      {"batch_size", s.batch_size},
      {"accumulate", s.accumulate},
      {"generation", s.generation},
      {"lr", s.lr},
      {"rng", {{"data_order", "seed + epoch"}, {"dropout", "seed, step, rank"}}},
      {"config_digest", config_digest(s.config)},
      {"config", config},
  };
  return json::serialize(all) + "\n";
}

RunState run_state_from_json(std::string_view text, const std::string& source) {
  const auto value = parse_json(text, source);
  const JsonObject in(value, source);
  if (const auto version = in.number<std::int64_t>("version"); version != format_version)
    throw make_error(Errc::io, "{}: version {} is not known here, expected {}", source, version, format_version);
  RunState s;
  s.step = in.number<std::int64_t>("step");
  s.epoch = in.number<std::int64_t>("epoch");
  s.samples = in.number<std::int64_t>("samples");
  s.seed = in.number<std::uint64_t>("seed");
  s.world_size = in.number<int>("world_size");
  s.batch_size = in.number<std::int64_t>("batch_size");
  s.accumulate = in.number<std::int64_t>("accumulate");
  s.generation = in.number<std::int64_t>("generation");
  s.lr = in.number<double>("lr");
  s.config = in.texts("config");
  return s;
}

}  // namespace ddprun::checkpoint
