#include "worker/tensor/device_marks.h"

#include <cmath>
#include <thread>
#include <utility>

#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun {

// The events of a device, of which some are free.
class DeviceMarks::Events {
 public:
  explicit Events(Device device) : device_(cuda::CudaDevice::of(device)) {}
  ~Events() {
    for (void* const event : all_) device_.api().destroy_event(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  void* take() {
    if (free_.empty()) {
      void* made = nullptr;
      cuda::check(device_.api().create_event(device_.context(), &made));
      all_.push_back(made);
      return made;
    }
    void* const event = free_.front();
    free_.pop_front();
    return event;
  }
  void give_back(void* event) { free_.push_back(event); }

  void record(void* event) const {
    cuda::check(device_.api().record_event(device_.context(), cuda::Queue::compute, event));
  }
  bool is_reached(void* event) const {
    bool reached = false;
    cuda::check(device_.api().event_reached(event, &reached));
    return reached;
  }
  Time between(void* from, void* to) const {
    double seconds = 0;
    cuda::check(device_.api().elapsed(from, to, &seconds));
    return Time(std::llround(1e9 * seconds));
  }
  void synchronize() const { device_.synchronize(); }
  std::size_t count() const { return all_.size(); }

 private:
  const cuda::CudaDevice& device_;
  std::vector<void*> all_;
  std::deque<void*> free_;
};

DeviceMarks::DeviceMarks(Device device) : events_(std::make_unique<Events>(device)), anchor_(events_->take()) {
  events_->synchronize();
  origin_ = std::chrono::steady_clock::now();
  events_->record(anchor_);
  events_->synchronize();
}

DeviceMarks::~DeviceMarks() = default;

std::size_t DeviceMarks::record() {
  step_.last = events_->take();
  step_.events.push_back(step_.last);
  events_->record(step_.last);
  return step_.events.size() - 1;
}

DeviceMarks::Reserved DeviceMarks::reserve() {
  void* const event = events_->take();
  const std::size_t number = step_.events.size();
  step_.events.push_back(nullptr);
  step_.awaited.emplace(number, event);
  return {number, event};
}

void DeviceMarks::confirm(std::size_t number) {
  const auto found = step_.awaited.find(number);
  if (found == step_.awaited.end()) return;
  step_.events[number] = found->second;
  step_.others.push_back(found->second);
  step_.awaited.erase(found);
}

void DeviceMarks::end_step() {
  ended_.push_back(std::exchange(step_, {}));
}

bool DeviceMarks::is_passed(const Step& step) const {
  if (!events_->is_reached(step.last)) return false;
  for (void* const event : step.others)
    if (!events_->is_reached(event)) return false;
  return true;
}

std::optional<std::vector<DeviceMarks::Time>> DeviceMarks::take_step() {
  if (ended_.empty() || !is_passed(ended_.front())) return std::nullopt;
  Step step = std::move(ended_.front());
  ended_.pop_front();
  return read(std::move(step));
}

std::optional<std::vector<DeviceMarks::Time>> DeviceMarks::await_step() {
  if (ended_.empty()) return std::nullopt;
  events_->synchronize();
  while (!is_passed(ended_.front())) std::this_thread::yield();  // a reserved point is in another queue
  return take_step();
}

// Times are measured from the step's first point, as those of CUDA lose digits with their length.
std::vector<DeviceMarks::Time> DeviceMarks::read(Step step) {
  void* const first = step.events.front();
  anchor_time_ += events_->between(anchor_, first);
  events_->give_back(std::exchange(anchor_, first));
  std::vector<Time> times{anchor_time_};
  for (std::size_t i = 1; i < step.events.size(); ++i) {
    void* const event = step.events[i];
    times.push_back(event ? anchor_time_ + events_->between(first, event) : anchor_time_);
    if (event) events_->give_back(event);  // else its holder may record it still
  }
  return times;
}

std::size_t DeviceMarks::events() const {
  return events_->count();
}

}  // namespace ddprun
