#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <tuple>

#include "worker/parallel/forms/pipeline/channel.h"

namespace ddprun::pipeline {

// Messages between devices of one process, each with a thread of its own.
//
// Ownership: keeps the messages that nobody has taken yet. Threads: thread-safe. Errors: see take().
class DeviceExchange {
 public:
  void put(int rank, const Message& message, Tensor value);
  // Waits for the message. Throws what fail() was called with, also while it waits.
  Tensor take(int rank, const Message& message);
  // Declares that a device will send nothing more: the first failure is thrown to all threads that wait.
  void fail(std::exception_ptr failure);
  void rethrow_failure();

 private:
  using Key = std::tuple<int, int, int, bool>;  // rank, stage, micro-batch, is it a gradient

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Tensor> messages_;
  std::exception_ptr failure_;
};

// One device's end of an exchange, which outlives it.
class DeviceChannel final : public Channel {
 public:
  DeviceChannel(DeviceExchange& exchange, int rank, Device device)
      : exchange_(exchange), rank_(rank), device_(device) {}

  // The tensor is row-major when it leaves: only the sender's thread computes on its device.
  void send(int rank, const Message& message, const Tensor& value) override {
    exchange_.put(rank, message, value.dense());
  }
  Tensor receive(int /*rank*/, const Message& message) override { return exchange_.take(rank_, message).to(device_); }
  void finish() override {}

 private:
  DeviceExchange& exchange_;
  const int rank_;
  const Device device_;
};

}  // namespace ddprun::pipeline
