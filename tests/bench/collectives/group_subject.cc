#include "tests/bench/collectives/group_subject.h"

namespace ddprun::bench {
namespace {

Span part(Span whole, std::size_t number, std::size_t parts) {
  const auto first = whole.count * number / parts, end = whole.count * (number + 1) / parts;
  return {static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype), end - first, whole.dtype};
}

class GroupSubject : public Subject {
 public:
  GroupSubject(ProcessGroup& group, const Operation& operation, const GroupSubjectOptions& options)
      : group_(group), operation_(operation), options_(options) {}

  std::string name() const override {
    return std::string(group_.backend()) + (options_.registered ? " registered" : "") +
           (options_.in_flight > 1 ? " " + std::to_string(options_.in_flight) + " parts"
            : options_.blocking    ? ""
                                   : " async");
  }

  bool registered() const override { return options_.registered; }
  bool has_threads() const override { return group_.backend() != "shm"; }
  void* input(std::size_t bytes) override {
    const auto count = bytes / size_of(options_.dtype), part = count / static_cast<std::size_t>(group_.size());
    output_ = span(output_memory_, operation_.part_out ? part : count);
    input_ = operation_.in_place ? output_ : span(input_memory_, operation_.part_in ? part : count);
    return input_.data;
  }
  const void* output() override { return output_.data; }
  void run() override {
    if (options_.in_flight > 1) return run_in_parts();
    const auto work = operation_.start(group_, {input_, output_}, {.timeout = {}, .blocking = options_.blocking});
    if (!options_.blocking) work->wait();  // a blocking call is complete, like an MPI call
  }

 private:
  void run_in_parts() {
    const auto parts = static_cast<std::size_t>(options_.in_flight);
    std::vector<WorkPtr> works;
    for (std::size_t i = 0; i < parts; ++i) {
      works.push_back(operation_.start(group_, {part(input_, i, parts), part(output_, i, parts)}, {}));
    }
    for (const auto& work : works) work->wait();
  }

  struct Memory {
    std::vector<std::byte> own;
    RegisteredBuffer registered;
  };
  Span span(Memory& memory, std::size_t count) const {
    const auto bytes = count * size_of(options_.dtype);
    if (!options_.registered) {
      memory.own.resize(bytes);
      return {memory.own.data(), count, options_.dtype};
    }
    if (memory.registered.bytes() != bytes) memory.registered = group_.allocate(bytes);
    return {memory.registered.data(), count, options_.dtype};
  }

  ProcessGroup& group_;
  const Operation& operation_;
  const GroupSubjectOptions options_;
  Memory input_memory_, output_memory_;
  Span input_, output_;
};

}  // namespace

std::unique_ptr<Subject> group_subject(ProcessGroup& group, const Operation& operation,
                                       const GroupSubjectOptions& options) {
  return std::make_unique<GroupSubject>(group, operation, options);
}

}  // namespace ddprun::bench
