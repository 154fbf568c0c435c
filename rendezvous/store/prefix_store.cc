#include "rendezvous/store/prefix_store.h"

namespace ddprun {

std::vector<std::string> PrefixStore::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const auto& key : keys) result.push_back(full(key));
  return result;
}

void PrefixStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  base_->set(full(key), value, deadline);
}
std::string PrefixStore::get(std::string_view key, Deadline deadline) {
  return base_->get(full(key), deadline);
}
std::int64_t PrefixStore::add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return base_->add(full(key), delta, deadline);
}
std::string PrefixStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline deadline) {
  return base_->compare_set(full(key), expected, desired, deadline);
}
bool PrefixStore::check(const std::vector<std::string>& keys, Deadline deadline) {
  return base_->check(full(keys), deadline);
}
void PrefixStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  base_->wait(full(keys), deadline);
}
bool PrefixStore::erase(std::string_view key, Deadline deadline) {
  return base_->erase(full(key), deadline);
}
std::int64_t PrefixStore::num_keys(Deadline deadline) {
  return base_->num_keys(deadline);
}
void PrefixStore::append(std::string_view key, std::string_view suffix, Deadline deadline) {
  base_->append(full(key), suffix, deadline);
}
std::vector<std::string> PrefixStore::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return base_->multi_get(full(keys), deadline);
}
void PrefixStore::multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) {
  std::vector<KeyValue> all;
  all.reserve(pairs.size());
  for (const auto& [key, value] : pairs) all.emplace_back(full(key), value);
  base_->multi_set(all, deadline);
}
std::vector<std::string> PrefixStore::list_keys(Deadline deadline) {
  std::vector<std::string> ours;
  for (const auto& key : base_->list_keys(deadline))
    if (key.starts_with(prefix_)) ours.push_back(key.substr(prefix_.size()));
  return ours;
}
void PrefixStore::queue_push(std::string_view queue, std::string_view item, Deadline deadline) {
  base_->queue_push(full(queue), item, deadline);
}
std::string PrefixStore::queue_pop(std::string_view queue, Deadline deadline) {
  return base_->queue_pop(full(queue), deadline);
}
std::int64_t PrefixStore::queue_length(std::string_view queue, Deadline deadline) {
  return base_->queue_length(full(queue), deadline);
}
void PrefixStore::barrier(std::string_view key, std::int64_t world_size, Deadline deadline) {
  base_->barrier(full(key), world_size, deadline);
}
void PrefixStore::set_will(std::string_view key, std::string_view value, Deadline deadline) {
  base_->set_will(full(key), value, deadline);
}
void PrefixStore::clear_will(Deadline deadline) {
  base_->clear_will(deadline);
}

}  // namespace ddprun
