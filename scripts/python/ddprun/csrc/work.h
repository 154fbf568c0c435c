#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "operation.h"

namespace ddprun_torch {

using c10d::OpType;

// The threads that end operations without a caller: collectives end in order, messages independently of them.
struct Completers {
  explicit Completers(const std::shared_ptr<InterpreterGate>& gate) : collectives(gate), messages(gate) {}
  Completer collectives;
  Completer messages;
};

// The handle of a blocking call, made before it and returned after it: no thread waits for it.
class EndedWork : public c10d::Work {
 public:
  EndedWork(int rank, OpType type, const char* title, std::vector<at::Tensor> outputs,
            const std::optional<std::vector<at::Tensor>>& inputs)
      : Work(rank, type, title, inputs), outputs_(std::move(outputs)) {}
  void end() { finish(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  const std::vector<at::Tensor> outputs_;
};

// PyTorch's handle of an Operation.
class GroupWork : public c10d::Work {
 public:
  GroupWork(OperationPtr operation, const std::shared_ptr<Completer>& completer, int rank, OpType type,
            const char* title, std::vector<at::Tensor> outputs,
            const std::optional<std::vector<at::Tensor>>& inputs = std::nullopt)
      : Work(rank, type, title, inputs),
        operation_(std::move(operation)),
        completer_(completer),
        outputs_(std::move(outputs)) {
    if (recordFunctionEndCallback_)
      operation_->on_end([end = std::move(recordFunctionEndCallback_)](const std::exception_ptr&) { end(); });
    recordFunctionEndCallback_ = nullptr;
  }
  // No caller waits any more: the operation's memory still has to live until its end.
  ~GroupWork() override {
    if (operation_->done()) {
      operation_->wait(-1);
    } else {
      completer_->push(operation_);
    }
  }

  bool isCompleted() override {
    if (!operation_->done()) return false;
    operation_->wait(-1);
    return true;
  }
  bool isSuccess() const override { return operation_->done() && !operation_->wait(-1); }
  std::exception_ptr exception() const override { return operation_->done() ? operation_->wait(-1) : nullptr; }
  int sourceRank() const override { return operation_->source(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(); }
  const OperationPtr& operation() const { return operation_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    if (const auto failure = operation_->wait(timeout == kNoTimeout ? -1 : timeout.count()))
      std::rethrow_exception(failure);
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    const bool done = operation_->done();
    operation_->on_end([future, outputs = outputs_](const std::exception_ptr& failure) {
      if (failure) {
        future->setError(failure);
      } else {
        future->markCompleted(c10::IValue(outputs));
      }
    });
    if (done) {
      operation_->wait(-1);
    } else {
      completer_->push(operation_);
    }
    return future;
  }

 private:
  const OperationPtr operation_;
  const std::shared_ptr<Completer> completer_;
  const std::vector<at::Tensor> outputs_;
};

}  // namespace ddprun_torch
