#include <chrono>
#include <optional>
#include <vector>

#include "common/deadline.h"
#include "worker/capi/element_types.h"
#include "worker/capi/handles.h"
#include "worker/capi/tensor_operation.h"
#include "worker/comm/comm_config.h"

using ddprun::capi::guarded;

namespace {

static_assert(static_cast<int>(ddprun::DType::int64) == DDPRUN_INT64 &&
              static_cast<int>(ddprun::ReduceOp::premultiplied_sum) == DDPRUN_PREMULTIPLIED_SUM);

ddprun::DType dtype_of(std::int32_t dtype) {
  if (dtype < DDPRUN_FLOAT32 || dtype > DDPRUN_INT64)
    throw ddprun::make_error(ddprun::Errc::usage, "{} is no type of elements", dtype);
  return static_cast<ddprun::DType>(dtype);
}
ddprun::Span span_of(const ddprun_span& span) {
  return {span.data, span.count, dtype_of(span.dtype)};
}
ddprun::Reduction reduction_of(const ddprun_reduction& from) {
  if (from.op < DDPRUN_SUM || from.op > DDPRUN_PREMULTIPLIED_SUM)
    throw ddprun::make_error(ddprun::Errc::usage, "{} is no reduction", from.op);
  ddprun::Reduction reduction(static_cast<ddprun::ReduceOp>(from.op));
  reduction.factor = from.factor;
  return reduction;
}
ddprun::Counts counts_of(const ddprun_group* group, const size_t* counts) {
  return {counts, counts + group->group->size()};
}
template <class Span>
std::vector<Span> spans_of(const ddprun_span* spans, size_t n) {
  std::vector<Span> converted;
  converted.reserve(n);
  for (size_t i = 0; i < n; ++i) converted.push_back(span_of(spans[i]));
  return converted;
}

ddprun::OpOptions options_of(int64_t timeout_ms, ddprun_work** work) {
  ddprun::OpOptions options{.blocking = work == nullptr};
  if (timeout_ms > 0) options.timeout = std::chrono::milliseconds(timeout_ms);
  return options;
}

// Starts an operation: operation(OpOptions) returns its Work.
template <class Operation>
int32_t start(int64_t timeout_ms, ddprun_work** work, ddprun_error* error, Operation operation) {
  return guarded(error, [&] {
    auto started = operation(options_of(timeout_ms, work));
    if (work) *work = new ddprun_work{std::move(started), nullptr};
  });
}

}  // namespace

int32_t ddprun_allreduce(ddprun_group* group, ddprun_span input, ddprun_span output, ddprun_reduction reduction,
                         DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    if (input.data == output.data) return group->group->allreduce(span_of(output), reduction_of(reduction), options);
    return group->group->allreduce(span_of(input), span_of(output), reduction_of(reduction), options);
  });
}

int32_t ddprun_reduce(ddprun_group* group, ddprun_span input, ddprun_span output, int32_t root,
                      ddprun_reduction reduction, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->reduce(span_of(input), span_of(output), root, reduction_of(reduction), options);
  });
}

int32_t ddprun_broadcast(ddprun_group* group, ddprun_span buffer, int32_t root, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->broadcast(span_of(buffer), root, options);
  });
}

int32_t ddprun_allgather(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts,
                         DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    if (!counts) return group->group->allgather(span_of(input), span_of(output), options);
    return group->group->allgatherv(span_of(input), span_of(output), counts_of(group, counts), options);
  });
}

int32_t ddprun_reduce_scatter(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts,
                              ddprun_reduction reduction, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    const auto how = reduction_of(reduction);
    if (!counts) return group->group->reduce_scatter(span_of(input), span_of(output), how, options);
    return group->group->reduce_scatterv(span_of(input), span_of(output), counts_of(group, counts), how, options);
  });
}

int32_t ddprun_gather(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts, int32_t root,
                      DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    if (!counts) return group->group->gather(span_of(input), span_of(output), root, options);
    return group->group->gatherv(span_of(input), span_of(output), counts_of(group, counts), root, options);
  });
}

int32_t ddprun_scatter(ddprun_group* group, ddprun_span input, const size_t* counts, ddprun_span output, int32_t root,
                       DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    if (!counts) return group->group->scatter(span_of(input), span_of(output), root, options);
    return group->group->scatterv(span_of(input), counts_of(group, counts), span_of(output), root, options);
  });
}

int32_t ddprun_all_to_all(ddprun_group* group, ddprun_span input, const size_t* input_counts, ddprun_span output,
                          const size_t* output_counts, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    if (!input_counts || !output_counts) return group->group->all_to_all(span_of(input), span_of(output), options);
    return group->group->all_to_allv(span_of(input), counts_of(group, input_counts), span_of(output),
                                     counts_of(group, output_counts), options);
  });
}

int32_t ddprun_barrier(ddprun_group* group, DDPRUN_CALL) {
  return start(timeout_ms, work, error,
               [&](const ddprun::OpOptions& options) { return group->group->barrier(options); });
}

int32_t ddprun_allreduce_coalesced(ddprun_group* group, const ddprun_span* buffers, size_t n,
                                   ddprun_reduction reduction, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->allreduce_coalesced(spans_of<ddprun::Span>(buffers, n), reduction_of(reduction), options);
  });
}

int32_t ddprun_allgather_coalesced(ddprun_group* group, const ddprun_span* inputs, const ddprun_span* outputs, size_t n,
                                   DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->allgather_coalesced(spans_of<ddprun::ConstSpan>(inputs, n), spans_of<ddprun::Span>(outputs, n),
                                             options);
  });
}

int32_t ddprun_reduce_scatter_coalesced(ddprun_group* group, const ddprun_span* inputs, const ddprun_span* outputs,
                                        size_t n, ddprun_reduction reduction, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->reduce_scatter_coalesced(spans_of<ddprun::ConstSpan>(inputs, n),
                                                  spans_of<ddprun::Span>(outputs, n), reduction_of(reduction), options);
  });
}

int32_t ddprun_send(ddprun_group* group, ddprun_span buffer, int32_t destination, int32_t tag, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->send(span_of(buffer), destination, tag, options);
  });
}

int32_t ddprun_recv(ddprun_group* group, ddprun_span buffer, int32_t source, int32_t tag, DDPRUN_CALL) {
  return start(timeout_ms, work, error, [&](const ddprun::OpOptions& options) {
    return group->group->recv(span_of(buffer), source, tag, options);
  });
}

const char* ddprun_operation_name(int32_t operation) {
  return ddprun::capi::name_of_operation(operation);
}
int32_t ddprun_reduced_as(int32_t type) {
  return ddprun::capi::reduced_as(type);
}
int32_t ddprun_tensor_operation(ddprun_group* group, int32_t operation, const ddprun_tensor* inputs, size_t input_count,
                                const ddprun_tensor* outputs, size_t output_count,
                                const ddprun_tensor_arguments* arguments, DDPRUN_CALL) {
  return guarded(error, [&] {
    auto started = ddprun::capi::start_on_tensors(
        *group->group, {operation, {inputs, input_count}, {outputs, output_count}, *arguments},
        options_of(timeout_ms, work));
    if (work) {
      *work = new ddprun_work{std::move(started.work), std::move(started.epilogue)};
    } else if (started.epilogue) {
      started.epilogue->run();
    }
  });
}

int32_t ddprun_work_wait(ddprun_work* work, int64_t timeout_ms, ddprun_error* error) {
  return guarded(error, [&] {
    work->work->wait(timeout_ms < 0 ? ddprun::Deadline::never()
                                    : ddprun::comm::deadline_after(std::chrono::milliseconds(timeout_ms)));
    if (work->epilogue) work->epilogue->run();
  });
}
int32_t ddprun_work_done(const ddprun_work* work) {
  return work->work->done();
}
int32_t ddprun_work_source(const ddprun_work* work) {
  return work->work->source();
}
void ddprun_work_free(ddprun_work* work) {
  // The memory of an operation that has not ended is in use: nothing frees it.
  if (work->epilogue && !work->work->done()) new std::shared_ptr<ddprun::capi::Epilogue>(std::move(work->epilogue));
  delete work;
}
