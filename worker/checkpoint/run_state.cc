#include "worker/checkpoint/run_state.h"

#include "worker/checkpoint/json_object.h"
#include "worker/digest/sha256.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::int64_t format_version = 1;

LossScale loss_scale_from(const json::value& state, const std::string& source) {
  const JsonObject in(state.as_object().at("loss_scale"), source);
  return {.scale = in.number<double>("scale"), .good_steps = in.number<std::int64_t>("good_steps")};
}

json::object to_object(const Plateau& plateau) {
  json::object object{{"lr", plateau.lr}, {"bad_evaluations", plateau.bad_evaluations}, {"cooldown", plateau.cooldown}};
  if (plateau.best) object["best"] = *plateau.best;
  return object;
}

Plateau plateau_from(const json::value& state, const std::string& source) {
  const JsonObject in(state.as_object().at("plateau"), source);
  Plateau plateau{.lr = in.number<double>("lr"),
                  .bad_evaluations = in.number<std::int64_t>("bad_evaluations"),
                  .cooldown = in.number<std::int64_t>("cooldown")};
  if (in.has("best")) plateau.best = in.number<double>("best");
  return plateau;
}

}  // namespace

std::string config_digest(const std::map<std::string, std::string>& config) {
  Sha256 hash;
  for (const auto& [key, value] : config) hash.update(fmt::format("{}={}\n", key, value));
  return hash.hex();
}

std::string to_json(const RunState& s) {
  json::object config;
  for (const auto& [key, value] : s.config) config[key] = value;
  json::object all{
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
      {"skipped_steps", s.skipped_steps},
      {"rng", {{"data_order", "seed + epoch"}, {"dropout", "seed, epoch, sample"}}},
      {"config_digest", config_digest(s.config)},
      {"config", config},
  };
  if (!s.ledger.empty()) all["ledger"] = s.ledger;
  if (s.best_loss) all["best_loss"] = *s.best_loss;
  if (s.loss_scale) all["loss_scale"] = {{"scale", s.loss_scale->scale}, {"good_steps", s.loss_scale->good_steps}};
  if (s.plateau) all["plateau"] = to_object(*s.plateau);
  if (!s.gradient_norms.empty()) all["gradient_norms"] = json::array(s.gradient_norms.begin(), s.gradient_norms.end());
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
  // Earlier versions did not write these.
  if (in.has("skipped_steps")) s.skipped_steps = in.number<std::int64_t>("skipped_steps");
  if (in.has("best_loss")) s.best_loss = in.number<double>("best_loss");
  if (in.has("loss_scale")) s.loss_scale = loss_scale_from(value, source);
  if (in.has("plateau")) s.plateau = plateau_from(value, source);
  if (in.has("gradient_norms")) s.gradient_norms = in.numbers("gradient_norms");
  if (in.has("ledger")) s.ledger = in.text("ledger");
  s.config = in.texts("config");
  const auto digest = config_digest(s.config);
  if (in.has("config_digest") && in.text("config_digest") != digest)
    throw make_error(Errc::io, "{}: member config_digest is {}, expected {}, the digest of config", source,
                     printable(in.text("config_digest")), digest);
  check_consistent(s, source);
  return s;
}

}  // namespace ddprun::checkpoint
