#include "launcher/dashboard/counted_record.h"

#include <utility>

namespace ddprun::dashboard {

TrainingRecord CountedRecord::count(const TrainingRecord& record, Totals& totals) {
  if (!is_of(record) || record.steps < counted_.steps) counted_ = {.pid = record.pid};
  TrainingRecord news = record;
  news.steps -= counted_.steps;
  news.samples -= counted_.samples;
  news.tokens -= counted_.tokens;
  news.data -= counted_.data;
  news.checkpoint -= counted_.checkpoint;
  totals.steps += news.steps;
  totals.samples += news.samples;
  totals.tokens += news.tokens;
  totals.step_seconds += record.step_seconds() - counted_.step_seconds();
  for (std::size_t i = 0; i < totals.step_counts.size(); ++i)
    totals.step_counts[i] += record.step_counts[i] - counted_.step_counts[i];
  counted_ = record;
  return news;
}

// Every rank counts the steps of the whole job. So the totals continue with the counts of the new rank since its start,
// less what it has counted beyond the last step of the former one.
void CountedRecord::change_to(const TrainingRecord& record) {
  if (counted_.pid == 0 || record.steps == 0) {
    counted_ = {.pid = record.pid};
    return;
  }
  const auto former = std::exchange(counted_, record);
  const auto ahead = counted_.step - former.step;
  const auto of_steps = [&](std::int64_t count) { return count / counted_.steps * ahead; };
  counted_.samples -= of_steps(counted_.samples);
  counted_.tokens -= of_steps(counted_.tokens);
  counted_.steps -= ahead;
}

}  // namespace ddprun::dashboard
