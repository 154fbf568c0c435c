#include "tests/bench/collectives/group_subject.h"

namespace ddprun::bench {
namespace {

class GroupSubject : public Subject {
 public:
  GroupSubject(ProcessGroup& group, const Operation& operation, const GroupSubjectOptions& options)
      : group_(group), operation_(operation), options_(options) {}

  std::string name() const override { return std::string(group_.backend()) + (options_.blocking ? "" : " async"); }

  void* input(std::size_t bytes) override {
    const auto count = bytes / size_of(options_.dtype), part = count / static_cast<std::size_t>(group_.size());
    output_ = span(output_memory_, operation_.part_out ? part : count);
    input_ = operation_.in_place ? output_ : span(input_memory_, operation_.part_in ? part : count);
    return input_.data;
  }
  const void* output() override { return output_.data; }
  void run() override {
    operation_.start(group_, {input_, output_}, {.timeout = {}, .blocking = options_.blocking})->wait();
  }

 private:
  Span span(std::vector<std::byte>& memory, std::size_t count) const {
    memory.resize(count * size_of(options_.dtype));
    return {memory.data(), count, options_.dtype};
  }

  ProcessGroup& group_;
  const Operation& operation_;
  const GroupSubjectOptions options_;
  std::vector<std::byte> input_memory_, output_memory_;
  Span input_, output_;
};

}  // namespace

std::unique_ptr<Subject> group_subject(ProcessGroup& group, const Operation& operation,
                                       const GroupSubjectOptions& options) {
  return std::make_unique<GroupSubject>(group, operation, options);
}

}  // namespace ddprun::bench
