#include "launcher/dashboard/view_json.h"

#include <cmath>
#include <iterator>

#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <fmt/format.h>

#include "common/printable.h"

namespace ddprun::dashboard {
namespace {

std::string json_text(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

// Returns "[a,b]" of those items for which use() is true.
template <class Items, class Use, class Text>
std::string list(const Items& items, Use use, Text text) {
  std::string result = "[";
  std::size_t index = 0;
  for (const auto& item : items) {
    if (use(item)) {
      if (result.size() > 1) result += ',';
      result += text(item, index);
    }
    ++index;
  }
  return result + "]";
}

std::string training_json(const TrainingRecord& t) {
  return fmt::format(
      R"({{"step":{},"total_steps":{},"epoch":{},"epochs":{},"loss":{},"learning_rate":{},"gradient_norm":{},)"
      R"("samples_per_s":{},"seconds_left":{},"data":{},"compute":{},"communication":{},"checkpoint":{},)"
      R"("evaluation":{},"step_seconds":{},"heard":{}}})",
      t.step, t.total_steps, t.epoch, t.epochs, number(t.loss), number(t.learning_rate), number(t.gradient_norm),
      number(t.samples_per_s), number(t.seconds_left), number(t.data), number(t.compute), number(t.communication),
      number(t.checkpoint), number(t.evaluation),
      number(t.steps > 0 ? t.step_seconds() / static_cast<double>(t.steps) : TrainingRecord::unknown), t.time_ms);
}

std::string seconds_json(const TimeByPart& seconds) {
  std::string text = "{";
  for (std::size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format(R"({}"{}":{})", i == 0 ? "" : ",", part_names[i], number(seconds[i]));
  return text + "}";
}

std::string job_json(const JobView& view) {
  const auto& facts = view.facts;
  return fmt::format(
      R"({{"run_id":{},"program":{},"host":{},"version":{},"min_nodes":{},"max_nodes":{},"max_restarts":{},)"
      R"("began":{},"state":{},"sentence":{},"waiting_for":{},"result":{},"heard":{},"silence":{},)"
      R"("generation":{},"world_size":{},"restarts_used":{},"recoveries":{},"goodput":{},"checkpoint":{},)"
      R"("seconds":{},"training":{}}})",
      json_text(facts.run_id), json_text(facts.program), json_text(facts.host), json_text(facts.version),
      facts.min_nodes, facts.max_nodes, facts.max_restarts, view.began.count(), json_text(name_of(view.state)),
      json_text(sentence(view)), json_text(view.waiting_for), json_text(view.result), view.heard.count(),
      json_text(view.silence), view.generation, view.world_size, view.restarts_used, view.recoveries(),
      number(goodput(view)), view.checkpoint.count(), seconds_json(view.seconds),
      view.training ? training_json(*view.training) : "null");
}

std::string point_json(const Point& point, std::size_t) {
  return fmt::format("[{},{},{},{}]", point.time.count(), point.step, number(point.loss), number(point.samples_per_s));
}

std::string evaluation_json(const Evaluation& evaluation, std::size_t) {
  return fmt::format("[{},{},{}]", evaluation.step, number(evaluation.loss), number(evaluation.accuracy));
}

std::string rank_json(const RankView& rank, std::size_t index) {
  auto text = fmt::format("[{},{},{},{},{},{},{},{},{}", index, rank.node, rank.local_rank, rank.pid,
                          static_cast<int>(rank.state), number(1e6 * rank.lateness), number(rank.shares[0]),
                          number(rank.shares[1]), number(rank.shares[2]));
  if (rank.replacements > 0) text += fmt::format(",{}", rank.replacements);
  return text + "]";
}

std::string usage_json(const NodeUsage& usage) {
  return fmt::format(
      R"({{"processors":{},"busy":{},"memory":{},"memory_used":{},"received":{},"sent":{},"shm":{},"shm_used":{}}})",
      usage.processors, number(usage.busy), usage.memory, usage.memory_used, number(usage.received), number(usage.sent),
      usage.shared_memory, usage.shared_memory_used);
}

std::string collective_json(const CollectiveView& collective, std::size_t) {
  return fmt::format("[{},{},{},{},{},{},{},{},{}]", json_text(collective.group), json_text(collective.operation),
                     collective.bytes, collective.count, number(collective.seconds), number(collective.median),
                     number(collective.bus_bandwidth), collective.slowest, number(collective.wait));
}

std::string node_json(const NodeView& node, std::size_t) {
  return fmt::format(R"({{"host":{},"address":{},"rank":{},"first_rank":{},"workers":{},"heard":{},"usage":{}}})",
                     json_text(node.host), json_text(node.address), node.group_rank, node.first_rank, node.workers,
                     node.heard.count(), node.usage ? usage_json(*node.usage) : "null");
}

std::string generation_json(const GenerationView& g, std::size_t) {
  return fmt::format(
      R"({{"generation":{},"replacement":{},"reason":{},"proposed":{},"started":{},"world_size":{},"restarts_used":{},)"
      R"("from_step":{},"detect":{},"agree":{},"restart":{},"heal":{},"replay":{}}})",
      g.generation, g.replacement, json_text(g.reason), g.proposed.count(), g.started.count(), g.world_size,
      g.restarts_used, g.from_step, g.detect.count(), g.agree.count(), g.restart.count(), g.heal.count(),
      g.replay.count());
}

std::string event_json(const EventView& event, std::size_t) {
  return fmt::format(R"({{"ms":{},"kind":{},"text":{},"step":{}}})", event.time.count(), json_text(event.kind),
                     json_text(event.text), event.step);
}

std::string message(const JobModel& model, Version since) {
  const auto& view = model.view();
  const bool full = since == 0;
  const auto is_new = [since](const auto& item) { return item.version > since; };
  const auto any = [](const auto&) { return true; };
  std::string text =
      fmt::format(R"({{"v":{},"full":{},"now":{},"job":{})", view.version, full, view.now.count(), job_json(view));
  text += R"(,"points":)" + list(view.points, is_new, point_json);
  text += R"(,"evaluations":)" + list(view.evaluations, is_new, evaluation_json);
  text += R"(,"ranks":)" + list(view.ranks, is_new, rank_json);
  text += R"(,"events":)" + list(view.events, is_new, event_json);
  if (model.nodes_changed() > since || full) text += R"(,"nodes":)" + list(view.nodes, any, node_json);
  if (model.generations_changed() > since || full)
    text += R"(,"generations":)" + list(view.generations, any, generation_json);
  if (model.collectives_changed() > since || full) {
    text += R"(,"collectives":)" + list(view.collectives, any, collective_json);
    text += R"(,"waits":)" + list(view.waits, any, [](const auto& wait, std::size_t) { return json_text(wait); });
  }
  return valid_json(text + "}");
}

}  // namespace

std::string snapshot_json(const JobModel& model) {
  return message(model, 0);
}

std::string changes_json(const JobModel& model, Version since) {
  const bool known = since >= model.oldest() && since <= model.view().version;
  return message(model, known ? since : 0);
}

}  // namespace ddprun::dashboard
