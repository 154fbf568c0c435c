#pragma once

#include <memory>
#include <string>

#include "rendezvous/store/store.h"

namespace ddprun {

// A namespace in another store: key k becomes "<prefix>/k", as with PyTorch's PrefixStore. Prefixes nest; the outermost
// comes first. Slashes are not normalized. num_keys() counts the keys of the base store; list_keys() lists those of
// this namespace. A client has one last will in the base store, whichever prefix it was set under. Ownership: shares
// the base store. Threads and errors: those of the base store.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> base)
      : prefix_(std::move(prefix) + "/"), base_(std::move(base)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool check(const std::vector<std::string>& keys, Deadline deadline) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool erase(std::string_view key, Deadline deadline) override;
  std::int64_t num_keys(Deadline deadline) override;
  void append(std::string_view key, std::string_view suffix, Deadline deadline) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  void multi_set(const std::vector<KeyValue>& pairs, Deadline deadline) override;
  std::vector<std::string> list_keys(Deadline deadline) override;
  void queue_push(std::string_view queue, std::string_view item, Deadline deadline) override;
  std::string queue_pop(std::string_view queue, Deadline deadline) override;
  std::int64_t queue_length(std::string_view queue, Deadline deadline) override;
  void barrier(std::string_view key, std::int64_t world_size, Deadline deadline) override;
  void set_will(std::string_view key, std::string_view value, Deadline deadline) override;
  void clear_will(Deadline deadline) override;
  bool end_announced(Deadline deadline) override { return base_->end_announced(deadline); }
  void wake() noexcept override { base_->wake(); }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  std::vector<std::string> full(const std::vector<std::string>& keys) const;

  const std::string prefix_;  // with the slash
  const std::shared_ptr<Store> base_;
};

}  // namespace ddprun
