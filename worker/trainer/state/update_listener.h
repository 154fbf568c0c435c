#pragma once

#include <vector>

namespace ddprun::trainer {

// Is told of each update of the parameters: of all that changes them and the optimizer's state.
//
// Threads: the calls come from the thread that trains. Errors: none.
class UpdateListener {
 public:
  virtual ~UpdateListener() = default;
  // The gradients are those by which the optimizer updates next.
  virtual void before_update() noexcept = 0;
  virtual void after_update() noexcept = 0;
};

// Tells all listeners that an update begins, and at its end that it has ended.
class ToldUpdate {
 public:
  explicit ToldUpdate(const std::vector<UpdateListener*>& listeners) : listeners_(listeners) {
    for (auto* listener : listeners_) listener->before_update();
  }
  ~ToldUpdate() {
    for (auto* listener : listeners_) listener->after_update();
  }
  ToldUpdate(const ToldUpdate&) = delete;
  ToldUpdate& operator=(const ToldUpdate&) = delete;

 private:
  const std::vector<UpdateListener*>& listeners_;
};

}  // namespace ddprun::trainer
