#include "tests/simulation/worker.h"

#include <utility>

#include "common/bytes.h"
#include "rendezvous/store/protocol.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using namespace rendezvous;

constexpr Duration redial_after = 300ms;
constexpr Duration give_up_after = 120s;  // without an answer of the store, or with workers missing
constexpr int gave_up = 1;

std::int64_t number(const Environment& environment, const char* name) {
  return std::stoll(environment.get(name).value());
}

// Reads the value of a complete WAIT_GET reply; returns false if it is incomplete.
bool take_value(std::string& bytes, std::string& value) {
  constexpr std::size_t head = 1 + sizeof(std::uint64_t);
  if (bytes.size() < head) return false;
  const auto size = get_le<std::uint64_t>(bytes, 1);
  if (bytes.size() < head + size) return false;
  value = bytes.substr(head, size);
  bytes.erase(0, head + size);
  return true;
}

}  // namespace

Worker::Worker(Simulation& simulation, Host& host, const FindHost& find_host, const Environment& environment, int job,
               Plan plan, Exited exited)
    : simulation_(simulation),
      host_(host),
      find_host_(find_host),
      master_(&find_host(environment.get("MASTER_ADDR").value())),
      job_(job),
      plan_(plan),
      exited_(std::move(exited)),
      process_(std::make_shared<Process>(simulation.time)),
      generation_(number(environment, "TORCHELASTIC_RESTART_COUNT")),
      rank_(static_cast<int>(number(environment, "RANK"))),
      world_size_(static_cast<int>(number(environment, "WORLD_SIZE"))),
      port_(static_cast<std::uint16_t>(number(environment, "MASTER_PORT"))),
      prefix_(fmt::format("/worker/attempt_{}/", environment.get("TORCHELASTIC_RESTART_COUNT").value())) {}

void Worker::start() {
  const auto on_time = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->step_ != Step::work) self->finish(gave_up);
  };
  process_->after(plan_.start_up, [self = shared_from_this()] { self->dial(); });
  process_->after(give_up_after, on_time);
}

void Worker::kill() {
  exited_ = nullptr;
  process_->kill();
}

void Worker::lose_power() {
  exited_ = nullptr;
  process_->lose_power();
}

void Worker::dial() {
  const std::weak_ptr<Worker> weak = weak_from_this();
  const int number = ++dials_;
  connection_ = Connection::dial(simulation_.time, simulation_.random, host_, process_, *master_, port_,
                                 {.packet =
                                      [weak, number](const Packet& packet) {
                                        const auto self = weak.lock();
                                        if (self && self->dials_ == number) self->handle_packet(packet.bytes);
                                      },
                                  .closed =
                                      [weak, number] {
                                        const auto self = weak.lock();
                                        if (self && self->dials_ == number) self->broken();
                                      }});
  if (step_ == Step::done) {
    send(encode(ValidateRequest{}));
    return count();
  }
  const auto own = fmt::format("{}/{}/{}", job_, generation_, rank_);
  send(encode(ValidateRequest{}) + encode(LastWillRequest{key("lost"), own}) +
       encode(SetRequest{key(fmt::format("rank/{}", rank_)), own}));
}

void Worker::send(const std::string& bytes) {
  connection_->send(Connection::client, {.bytes = bytes});
}

void Worker::follow_store(const std::string& address, std::uint16_t port) {
  master_ = &find_host_(address);
  port_ = port;
  moved_ = true;
  if (dials_ == 0) return;
  received_.clear();
  connection_ = nullptr;
  ++dials_;
  if (step_ == Step::done || step_ == Step::will) return dial();
  if (step_ != Step::work) finish(gave_up);
}

// Redials a store that has not started; exits if the connection is lost before it works.
void Worker::broken() {
  if (step_ == Step::work || step_ == Step::done) {
    moved_ = false;
    connection_ = nullptr;
    ++dials_;
    return;
  }
  if (step_ != Step::will) return finish(gave_up);
  process_->after(redial_after, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->dial();
  });
}

void Worker::handle_packet(const std::string& bytes) {
  received_ += bytes;
  while (process_->alive() && advance()) continue;
}

// Reads the reply of the current step once it is complete, and sends the next request.
bool Worker::advance() {
  std::string value;
  const int neighbour = (rank_ + 1) % world_size_;
  switch (step_) {
    case Step::will:
      if (received_.empty()) return false;
      received_.erase(0, 1);
      if (plan_.replacement) {
        work();
        return false;
      }
      step_ = Step::neighbour;
      send(encode(WaitGetRequest{key(fmt::format("rank/{}", neighbour))}));
      return true;
    case Step::neighbour:
      if (!take_value(received_, value)) return false;
      simulation_.checker.read(value, job_, generation_, neighbour);
      step_ = Step::first;
      send(encode(WaitGetRequest{key("rank/0")}));
      return true;
    case Step::first:
      if (!take_value(received_, value)) return false;
      simulation_.checker.read(value, job_, generation_, 0);
      step_ = Step::barrier;
      send(encode(BarrierRequest{key("barrier"), world_size_}));
      return true;
    case Step::barrier:
      if (received_.empty()) return false;
      received_.erase(0, 1);
      work();
      return false;
    case Step::work:
      return false;
    case Step::done:
      if (received_.size() < sizeof(std::int64_t) + 1) return false;
      if (!newcomers_) simulation_.checker.counted(job_, generation_, get_le<std::int64_t>(received_), world_size_);
      finish(0);
      return false;
  }
  return false;
}

void Worker::work() {
  step_ = Step::work;
  process_->after(plan_.work, [self = shared_from_this()] {
    if (self->plan_.exit_code != 0) return self->finish(self->plan_.exit_code);
    self->step_ = Step::done;
    self->process_->after(give_up_after, [self] { self->finish(gave_up); });
    self->count();
  });
}

// A store that is lost is not asked before another one is there.
void Worker::count() {
  if (connection_) return send(encode(AddRequest{key("done"), 1}) + encode(ClearLastWillRequest{}));
  if (moved_) dial();
}

void Worker::finish(int exit_code) {
  const auto exited = std::exchange(exited_, nullptr);
  process_->kill();
  if (exited) exited(exit_code);
}

}  // namespace ddprun::testing
