#include "worker/trainer/ledger/ledger_lines.h"

#include <boost/json.hpp>
#include <fmt/format.h>

namespace ddprun::trainer {
namespace {

namespace json = boost::json;

std::string text_of(const LedgerSession& s) {
  return fmt::format(
      R"({{"session": "{}", "parent": "{}", "after": {}, "ranks": {}, "seed": {}, "epoch_samples": {}{}}})", s.id,
      s.parent, s.after, s.ranks, s.seed, s.epoch_samples,
      s.rolled_back_from ? fmt::format(R"(, "rolled_back_from": {})", *s.rolled_back_from) : "");
}

std::string text_of(const LedgerStep& s) {
  return fmt::format(R"({{"session": "{}", "step": {}, "epoch": {}, "first": {}, "samples": {}{}}})", s.session, s.step,
                     s.epoch, s.first, s.samples, s.ends_epoch ? R"(, "ends_epoch": true)" : "");
}

}  // namespace

std::string to_json(const LedgerLine& line) {
  return std::visit([](const auto& each) { return text_of(each); }, line);
}

std::optional<LedgerLine> parse_ledger_line(std::string_view text) try {
  const auto value = json::parse({text.data(), text.size()});
  const auto& object = value.as_object();
  const auto number = [&](const char* name) { return object.at(name).to_number<std::int64_t>(); };
  const auto word = [&](const char* name) { return std::string(std::string_view(object.at(name).as_string())); };
  if (!object.contains("step"))
    return LedgerSession{.id = word("session"),
                         .parent = word("parent"),
                         .after = number("after"),
                         .ranks = static_cast<int>(number("ranks")),
                         .seed = object.at("seed").to_number<std::uint64_t>(),
                         .epoch_samples = number("epoch_samples"),
                         .rolled_back_from = object.contains("rolled_back_from")
                                                 ? std::optional(number("rolled_back_from"))
                                                 : std::nullopt};
  return LedgerStep{.session = word("session"),
                    .step = number("step"),
                    .epoch = number("epoch"),
                    .first = number("first"),
                    .samples = number("samples"),
                    .ends_epoch = object.contains("ends_epoch")};
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace ddprun::trainer
