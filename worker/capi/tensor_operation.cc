#include "worker/capi/tensor_operation.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "worker/capi/element_types.h"
#include "worker/capi/flat_list.h"
#include "worker/capi/handles.h"

namespace ddprun::capi {
namespace {

constexpr std::array names{
    "all_reduce",
    "all_reduce_coalesced",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "gather",
    "gather_single",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
    "all_to_all",
    "all_to_all_single",
    "send",
    "recv",
    "barrier",
};
static_assert(names.size() == DDPRUN_BARRIER + 1);

Span as_units(void* data, std::size_t count, const Units& units) {
  return {data, count * units.count, units.dtype};
}

Counts counts_of(Tensors tensors, const Units& units) {
  Counts counts;
  counts.reserve(tensors.size());
  for (const auto& tensor : tensors) counts.push_back(elements(tensor) * units.count);
  return counts;
}

bool equal_sizes(Tensors tensors) {
  return std::ranges::all_of(tensors, [&](const auto& tensor) { return tensor.count == tensors.front().count; });
}

void flip_highest_bits(const void* from, void* to, std::size_t count) {
  const auto* const values = static_cast<const std::uint64_t*>(from);
  std::transform(values, values + count, static_cast<std::uint64_t*>(to),
                 [](std::uint64_t value) { return value ^ (std::uint64_t{1} << 63); });
}

template <class Integer>
void divide_as(const Span& span, int divisor) {
  auto* const values = static_cast<Integer*>(span.data);
  for (std::size_t i = 0; i < span.count; ++i) values[i] = static_cast<Integer>(values[i] / divisor);
}
void divide(const Span& span, int divisor) {
  switch (span.dtype) {
    case DType::int8:
      return divide_as<std::int8_t>(span, divisor);
    case DType::uint8:
      return divide_as<std::uint8_t>(span, divisor);
    case DType::int32:
      return divide_as<std::int32_t>(span, divisor);
    default:
      return divide_as<std::int64_t>(span, divisor);
  }
}

// Checks the arguments of one call, makes spans of its tensors and starts the operation.
class Starter {
 public:
  Starter(ProcessGroup& group, const TensorCall& call, const OpOptions& options)
      : group_(group),
        inputs_(call.inputs),
        outputs_(call.outputs),
        arguments_(call.arguments),
        options_(options),
        name_(names.at(static_cast<std::size_t>(call.operation))),
        root_(group.rank() == call.arguments.peer) {}

  WorkPtr start(std::int32_t operation) {
    switch (operation) {
      case DDPRUN_ALL_REDUCE:
        return all_reduce();
      case DDPRUN_ALL_REDUCE_COALESCED:
        return all_reduce_coalesced();
      case DDPRUN_REDUCE:
        return reduce();
      case DDPRUN_BROADCAST:
        return group_.broadcast(moved(only(outputs_)), arguments_.peer, options_);
      case DDPRUN_ALL_GATHER:
        return all_gather();
      case DDPRUN_ALL_GATHER_INTO_TENSOR:
        require_parts(only(outputs_), only(inputs_));
        return group_.allgather(moved(inputs_.front()), moved(outputs_.front()), options_);
      case DDPRUN_ALL_GATHER_INTO_TENSOR_COALESCED:
        return all_gather_into_tensor_coalesced();
      case DDPRUN_GATHER:
        return gather();
      case DDPRUN_GATHER_SINGLE:
        if (root_) require_parts(only(outputs_), only(inputs_));
        return gather_into(root_ ? moved(outputs_.front()) : Span{});
      case DDPRUN_SCATTER:
        return scatter();
      case DDPRUN_REDUCE_SCATTER:
        return reduce_scatter();
      case DDPRUN_REDUCE_SCATTER_TENSOR:
        return reduce_scatter_tensor();
      case DDPRUN_REDUCE_SCATTER_TENSOR_COALESCED:
        return reduce_scatter_tensor_coalesced();
      case DDPRUN_ALL_TO_ALL:
        return all_to_all();
      case DDPRUN_ALL_TO_ALL_SINGLE:
        return all_to_all_single();
      case DDPRUN_SEND:
        return group_.send(moved(only(inputs_)), arguments_.peer, arguments_.tag, options_);
      case DDPRUN_RECV:
        return group_.recv(moved(only(outputs_)), arguments_.peer, arguments_.tag, options_);
      default:
        return group_.barrier(options_);
    }
  }
  std::shared_ptr<Epilogue> epilogue() { return std::move(epilogue_); }

 private:
  // Checks.

  template <class... Arguments>
  void require(bool condition, fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    if (!condition) throw make_error(Errc::usage, text, std::forward<Arguments>(arguments)...);
  }
  const ddprun_tensor& only(Tensors tensors) const {
    require(tensors.size() == 1, "{} takes one tensor, not {}", name_, tensors.size());
    return tensors.front();
  }
  void require_type(const ddprun_tensor& tensor, std::int32_t type) const {
    if (tensor.type != type)
      throw WrongType(fmt::format("{} of tensors of different types: {} and {}", name_, name_of_type(type),
                                  name_of_type(tensor.type)));
  }
  void require_types(Tensors tensors, std::int32_t type) const {
    for (const auto& tensor : tensors) require_type(tensor, type);
  }
  void require_parts(const ddprun_tensor& whole, const ddprun_tensor& part) const {
    require_type(part, whole.type);
    require(whole.count == part.count * group_.size(), "{} with {} ranks: {} elements are not {} times {}", name_,
            group_.size(), whole.count, group_.size(), part.count);
  }
  void require_list(Tensors tensors) const {
    require(static_cast<int>(tensors.size()) == group_.size(), "{} needs a tensor for each of the {} ranks, not {}",
            name_, group_.size(), tensors.size());
    require_types(tensors, tensors.front().type);
  }
  void require_equal_parts(Tensors parts, const ddprun_tensor& own) const {
    require_list(parts);
    require_types(parts, own.type);
    require(equal_sizes(parts) && parts.front().count == own.count, "{} needs tensors of the same size", name_);
  }
  void require_list_at_root(const char* of_what) const {
    require(arguments_.lists == (root_ ? 1 : 0), "{} takes a list of {} at its root, and none elsewhere", name_,
            of_what);
  }
  void require_pairs() const {
    require(outputs_.size() == inputs_.size(), "{} outputs for {} inputs", outputs_.size(), inputs_.size());
  }

  // Tensors as spans.

  Epilogue& after() {
    if (!epilogue_) epilogue_ = std::make_shared<Epilogue>();
    return *epilogue_;
  }
  static Units units_to_move(const ddprun_tensor& tensor) { return moved_units(tensor.type, tensor.element_bytes); }
  static Span moved(const ddprun_tensor& tensor) {
    return as_units(tensor.data, elements(tensor), units_to_move(tensor));
  }
  Span flat_input(const FlatList& list, const Units& units) {
    void* memory = list.piece();
    if (!memory && list.count() > 0) list.copy_to(memory = after().allocate(list.bytes()));
    return as_units(memory, list.count(), units);
  }
  Span flat_output(const FlatList& list, const Units& units) {
    void* memory = list.piece();
    if (!memory && list.count() > 0) {
      memory = after().allocate(list.bytes());
      after().then(list.copy_from(memory));
    }
    return as_units(memory, list.count(), units);
  }
  Span flipped(const Span& span) {
    void* const copy = after().allocate(span.bytes());
    flip_highest_bits(span.data, copy, span.count);
    return {copy, span.count, span.dtype};
  }
  // An input of a reduction.
  ConstSpan reduced_input(const Span& span, const Encoding& encoding) {
    return encoding.flips_highest_bit ? flipped(span) : span;
  }
  // An output of a reduction, which may be its input as well. receives: this rank gets the result.
  Span reduced_output(const ddprun_tensor& tensor, const Encoding& encoding, bool receives = true) {
    const auto span = as_units(tensor.data, elements(tensor), encoding.units);
    if (encoding.divides && receives) after().then([span, size = group_.size()] { divide(span, size); });
    if (!encoding.flips_highest_bit) return span;
    const auto copy = flipped(span);
    if (receives) after().then([span, copy] { flip_highest_bits(copy.data, span.data, span.count); });
    return copy;
  }

  // Operations.

  WorkPtr all_reduce() {
    const auto& tensor = only(outputs_);
    const auto encoding = encoding_of(tensor.type, arguments_.reduction);
    return group_.allreduce(reduced_output(tensor, encoding), encoding.reduction, options_);
  }
  WorkPtr all_reduce_coalesced() {
    require(!outputs_.empty(), "{} of no tensor", name_);
    require_types(outputs_, outputs_.front().type);
    const auto encoding = encoding_of(outputs_.front().type, arguments_.reduction);
    std::vector<Span> spans;
    for (const auto& tensor : outputs_) spans.push_back(reduced_output(tensor, encoding));
    return group_.allreduce_coalesced(spans, encoding.reduction, options_);
  }
  WorkPtr reduce() {
    const auto& tensor = only(outputs_);
    const auto encoding = encoding_of(tensor.type, arguments_.reduction);
    return group_.reduce(reduced_output(tensor, encoding, root_), arguments_.peer, encoding.reduction, options_);
  }

  WorkPtr all_gather() {
    const auto& input = only(inputs_);
    require(arguments_.lists == 1, "{} takes one list of outputs", name_);
    require_list(outputs_);
    if (const auto type = outputs_.front().type; type != input.type)
      throw WrongType(fmt::format("{} of {} into {}", name_, name_of_type(input.type), name_of_type(type)));
    const auto place = outputs_[static_cast<std::size_t>(group_.rank())].count;
    require(place == input.count, "{}: this rank's input has {} elements, its place in the output {}", name_,
            input.count, place);
    const auto units = units_to_move(input);
    const auto output = flat_output({outputs_, units}, units);
    if (equal_sizes(outputs_)) return group_.allgather(moved(input), output, options_);
    return group_.allgatherv(moved(input), output, counts_of(outputs_, units), options_);
  }
  WorkPtr all_gather_into_tensor_coalesced() {
    require_pairs();
    std::vector<ConstSpan> from;
    std::vector<Span> to;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      require_parts(outputs_[i], inputs_[i]);
      from.push_back(moved(inputs_[i]));
      to.push_back(moved(outputs_[i]));
    }
    return group_.allgather_coalesced(from, to, options_);
  }

  WorkPtr gather() {
    const auto& input = only(inputs_);
    require_list_at_root("outputs");
    if (!root_) return gather_into({});
    require_equal_parts(outputs_, input);
    const auto units = units_to_move(input);
    return gather_into(flat_output({outputs_, units}, units));
  }
  // output: {} where this rank is not the root.
  WorkPtr gather_into(Span output) {
    const auto input = moved(only(inputs_));
    output.dtype = input.dtype;
    return group_.gather(input, output, arguments_.peer, options_);
  }
  WorkPtr scatter() {
    const auto& output = only(outputs_);
    require_list_at_root("inputs");
    const auto units = units_to_move(output);
    Span input{nullptr, 0, units.dtype};
    if (root_) {
      require_equal_parts(inputs_, output);
      input = flat_input({inputs_, units}, units);
    }
    return group_.scatter(input, moved(output), arguments_.peer, options_);
  }

  WorkPtr reduce_scatter() {
    const auto& output = only(outputs_);
    require(arguments_.lists == 1, "{} takes one list of inputs", name_);
    require_list(inputs_);
    require_types(inputs_, output.type);
    const auto own = inputs_[static_cast<std::size_t>(group_.rank())].count;
    require(own == output.count, "{}: this rank's input has {} elements, its output {}", name_, own, output.count);
    const auto encoding = encoding_of(output.type, arguments_.reduction);
    const auto input = reduced_input(flat_input({inputs_, encoding.units}, encoding.units), encoding);
    const auto to = reduced_output(output, encoding);
    if (equal_sizes(inputs_)) return group_.reduce_scatter(input, to, encoding.reduction, options_);
    return group_.reduce_scatterv(input, to, counts_of(inputs_, encoding.units), encoding.reduction, options_);
  }
  ConstSpan whole_input(const ddprun_tensor& input, const ddprun_tensor& output, const Encoding& encoding) {
    require_parts(input, output);
    return reduced_input(as_units(input.data, elements(input), encoding.units), encoding);
  }
  WorkPtr reduce_scatter_tensor() {
    require_parts(only(inputs_), only(outputs_));
    const auto encoding = encoding_of(outputs_.front().type, arguments_.reduction);
    const auto input = whole_input(inputs_.front(), outputs_.front(), encoding);
    return group_.reduce_scatter(input, reduced_output(outputs_.front(), encoding), encoding.reduction, options_);
  }
  WorkPtr reduce_scatter_tensor_coalesced() {
    require_pairs();
    require(!inputs_.empty(), "{} outputs for {} inputs", outputs_.size(), inputs_.size());
    require_types(inputs_, outputs_.front().type);
    const auto encoding = encoding_of(outputs_.front().type, arguments_.reduction);
    std::vector<ConstSpan> from;
    std::vector<Span> to;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      from.push_back(whole_input(inputs_[i], outputs_[i], encoding));
      to.push_back(reduced_output(outputs_[i], encoding));
    }
    return group_.reduce_scatter_coalesced(from, to, encoding.reduction, options_);
  }

  WorkPtr all_to_all() {
    require_list(outputs_);
    require_list(inputs_);
    require_types(inputs_, outputs_.front().type);
    const auto units = units_to_move(outputs_.front());
    return group_.all_to_allv(flat_input({inputs_, units}, units), counts_of(inputs_, units),
                              flat_output({outputs_, units}, units), counts_of(outputs_, units), options_);
  }
  WorkPtr all_to_all_single() {
    const auto &output = only(outputs_), &input = only(inputs_);
    require_type(input, output.type);
    const std::span splits_of_input(arguments_.input_splits, arguments_.input_split_count);
    const std::span splits_of_output(arguments_.output_splits, arguments_.output_split_count);
    const auto input_counts = counts_of_splits(input, splits_of_input, "input");
    const auto output_counts = counts_of_splits(output, splits_of_output, "output");
    if (splits_of_input.empty() && splits_of_output.empty())
      return group_.all_to_all(moved(input), moved(output), options_);
    return group_.all_to_allv(moved(input), input_counts, moved(output), output_counts, options_);
  }
  // Splits are rows; without splits the parts are equal.
  Counts counts_of_splits(const ddprun_tensor& tensor, std::span<const std::int64_t> splits, const char* which) const {
    const auto size = static_cast<std::size_t>(group_.size());
    const auto units = moved(tensor).count;
    const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(tensor.rows, 0));
    if (splits.empty()) {
      require(tensor.rows >= 0 && rows % size == 0,
              "{}: the first dimension of the {} does not divide into {} equal parts", name_, which, size);
      return Counts(size, units / size);
    }
    require(splits.size() == size, "{}: {} {} splits for {} ranks", name_, splits.size(), which, size);
    std::int64_t sum = 0;
    for (const auto split : splits) sum += split;
    require(sum == tensor.rows, "{}: the {} splits add up to {} rows, not to those of the tensor", name_, which, sum);
    Counts counts;
    for (const auto split : splits) counts.push_back(static_cast<std::size_t>(split) * (rows ? units / rows : 0));
    return counts;
  }

  ProcessGroup& group_;
  Tensors inputs_, outputs_;
  const ddprun_tensor_arguments& arguments_;
  const OpOptions& options_;
  const char* name_;
  bool root_;
  std::shared_ptr<Epilogue> epilogue_;
};

}  // namespace

const char* name_of_operation(std::int32_t operation) {
  return operation >= 0 && operation <= DDPRUN_BARRIER ? names[static_cast<std::size_t>(operation)] : nullptr;
}

StartedOperation start_on_tensors(ProcessGroup& group, const TensorCall& call, const OpOptions& options) {
  if (!name_of_operation(call.operation))
    throw make_error(Errc::usage, "{} is no operation on tensors", call.operation);
  Starter starter(group, call, options);
  auto work = starter.start(call.operation);
  return {std::move(work), starter.epilogue()};
}

}  // namespace ddprun::capi
