#include "launcher/dashboard/rank_details.h"

#include <algorithm>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "common/printable.h"
#include "launcher/dashboard/collectives.h"

namespace ddprun::dashboard {
namespace {

namespace json = boost::json;

std::string host_of(const JobView& view, const RankView& rank) {
  const auto node = std::find_if(view.nodes.begin(), view.nodes.end(),
                                 [&](const auto& each) { return each.group_rank == rank.node; });
  return node == view.nodes.end() ? "" : node->host;
}

json::value text_or_null(const std::optional<std::string>& text) {
  return text ? json::value(*text) : json::value(nullptr);
}

json::array to_array(const std::vector<GroupPlace>& places) {
  json::array array;
  for (const auto& place : places)
    array.push_back(json::object{{"group", place.group},
                                 {"place", place.place},
                                 {"operation", place.operation},
                                 {"inside", place.inside},
                                 {"since_ms", place.since.count()}});
  return array;
}

void add_evidence(json::object& object, const RankEvidence& evidence) {
  json::array process;
  for (const auto& [name, value] : evidence.process) process.push_back(json::array{name, value});
  object["process"] = std::move(process);
  object["out"] = text_or_null(evidence.out);
  object["err"] = text_or_null(evidence.err);
  if (evidence.process.empty()) object["note"] = "the process has ended";
}

}  // namespace

std::string rank_details(const JobView& view, int rank, const std::vector<GroupProgress>& groups,
                         const std::optional<RankEvidence>& evidence) {
  json::object object{{"rank", rank}, {"note", ""}};
  if (rank < 0 || rank >= static_cast<int>(view.ranks.size())) {
    object["note"] = "there is no such rank";
    return json::serialize(object);
  }
  const auto& known = view.ranks[static_cast<std::size_t>(rank)];
  const auto host = host_of(view, known);
  object["host"] = host;
  object["started"] = known.started.count();
  object["groups"] = to_array(places_of(groups, host, known.pid));
  if (evidence)
    add_evidence(object, *evidence);
  else
    object["note"] = fmt::format("its output and /proc are on host {}: the page of an agent there has them", host);
  return valid_json(json::serialize(object));
}

}  // namespace ddprun::dashboard
