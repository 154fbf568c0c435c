#include "launcher/control/agent_record.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "common/error.h"
#include "common/printable.h"

namespace ddprun {

namespace json = boost::json;

std::string to_json(const AgentRecord& record) {
  return valid_json(json::serialize(json::object{{"pid", record.pid},
                                                 {"endpoint", record.endpoint},
                                                 {"grace_s", record.grace.count()},
                                                 {"relays", record.relays},
                                                 {"own", to_json(std::vector{record.own})}}));
}

AgentRecord parse_agent_record(std::string_view text) {
  try {
    const auto document = json::parse(json::string_view(text.data(), text.size()));
    const auto& object = document.as_object();
    const auto& own = object.at("own").as_string();
    const auto* relays = object.if_contains("relays");  // absent in records of older agents
    return {.pid = object.at("pid").to_number<std::int64_t>(),
            .endpoint = std::string(object.at("endpoint").as_string()),
            .grace = std::chrono::seconds(object.at("grace_s").to_number<std::int64_t>()),
            .relays = relays && relays->as_bool(),
            .own = parse_job_statuses({own.data(), own.size()}).at(0)};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw make_error(Errc::protocol, "this is not an agent's answer: {}", e.what());
  }
}

}  // namespace ddprun
