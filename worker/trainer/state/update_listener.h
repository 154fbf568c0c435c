#pragma once

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

// Tells a listener, if there is one, that an update begins, and at its end that it has ended.
class ToldUpdate {
 public:
  explicit ToldUpdate(UpdateListener* listener) : listener_(listener) {
    if (listener_) listener_->before_update();
  }
  ~ToldUpdate() {
    if (listener_) listener_->after_update();
  }
  ToldUpdate(const ToldUpdate&) = delete;
  ToldUpdate& operator=(const ToldUpdate&) = delete;

 private:
  UpdateListener* const listener_;
};

}  // namespace ddprun::trainer
