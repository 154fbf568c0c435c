// Compiled once for each MPI; loaded with dlopen by the process that MPI started.
#include <array>
#include <cstring>
#include <mpi.h>

#include "worker/comm/backends/mpi/mpi_functions.h"

namespace ddprun::comm {
namespace {

using Communicator = MpiFunctions::Communicator;
using Request = MpiFunctions::Request;

template <class Handle>
std::uint64_t number_of(Handle handle) {
  static_assert(sizeof(handle) <= sizeof(std::uint64_t));
  std::uint64_t number = 0;
  std::memcpy(&number, &handle, sizeof(handle));
  return number;
}

template <class Handle>
Handle handle_of(std::uint64_t number) {
  Handle handle;
  std::memcpy(&handle, &number, sizeof(handle));
  return handle;
}

// A global variable, since MPI passes no context to the function of a user's operation.
MpiFunctions::Reduce reduce_for_mpi = nullptr;

template <ReduceOp op, DType dtype>
void combine(void* in, void* in_out, int* count, MPI_Datatype*) {
  reduce_for_mpi(op, dtype, in_out, in, in_out, static_cast<std::size_t>(*count));
}

// Operations for what MPI lacks, 16-bit floats, and for what MPICH 4.0 has wrong, the largest and the least uint8,
// which it compares as int8. They are indexed by ReduceOp.
using Operations = std::array<MPI_Op, 5>;
struct OwnTypes {
  MPI_Datatype half = MPI_DATATYPE_NULL;
  Operations float16{}, bfloat16{}, uint8{};
} own;

template <DType dtype, ReduceOp op>
int create(Operations& operations) {
  return MPI_Op_create(combine<op, dtype>, 1, &operations[static_cast<std::size_t>(op)]);
}

template <DType dtype>
int create_all(Operations& operations) {
  if (const int code = create<dtype, ReduceOp::sum>(operations)) return code;
  if (const int code = create<dtype, ReduceOp::average>(operations)) return code;
  if (const int code = create<dtype, ReduceOp::product>(operations)) return code;
  if (const int code = create<dtype, ReduceOp::min>(operations)) return code;
  return create<dtype, ReduceOp::max>(operations);
}

int create_own_types() {
  if (const int code = MPI_Type_contiguous(2, MPI_BYTE, &own.half)) return code;
  if (const int code = MPI_Type_commit(&own.half)) return code;
  if (const int code = create_all<DType::float16>(own.float16)) return code;
  if (const int code = create_all<DType::bfloat16>(own.bfloat16)) return code;
  if (const int code = create<DType::uint8, ReduceOp::min>(own.uint8)) return code;
  return create<DType::uint8, ReduceOp::max>(own.uint8);
}

void free_own_types() {
  MPI_Type_free(&own.half);
  for (auto* operations : {&own.float16, &own.bfloat16})
    for (auto& each : *operations) MPI_Op_free(&each);
  for (const auto op : {ReduceOp::min, ReduceOp::max}) MPI_Op_free(&own.uint8[static_cast<std::size_t>(op)]);
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    default:
      return own.half;
  }
}

// The caller divides an average itself.
MPI_Op operation_of(ReduceOp op, DType dtype) {
  const auto at = static_cast<std::size_t>(op);
  if (dtype == DType::float16) return own.float16[at];
  if (dtype == DType::bfloat16) return own.bfloat16[at];
  if (dtype == DType::uint8 && (op == ReduceOp::min || op == ReduceOp::max)) return own.uint8[at];
  switch (op) {
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::bit_and:
      return MPI_BAND;
    case ReduceOp::bit_or:
      return MPI_BOR;
    case ReduceOp::bit_xor:
      return MPI_BXOR;
    default:
      return MPI_SUM;
  }
}

constexpr std::array thread_levels = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                      MPI_THREAD_MULTIPLE};  // by ThreadLevel

int initialize(MpiFunctions::Reduce reduce, ThreadLevel wanted, ThreadLevel* provided, bool* by_program) {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  *by_program = initialized != 0;
  const int code = initialized
                       ? MPI_Query_thread(&level)
                       : MPI_Init_thread(nullptr, nullptr, thread_levels[static_cast<std::size_t>(wanted)], &level);
  if (code) return code;
  for (std::size_t i = 0; i < thread_levels.size(); ++i)
    if (level >= thread_levels[i]) *provided = static_cast<ThreadLevel>(i);
  reduce_for_mpi = reduce;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return create_own_types();
}

int finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return MPI_SUCCESS;
  free_own_types();
  return MPI_Finalize();
}

int world(int* rank, int* size, int* tag_upper_bound) {
  if (const int code = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return code;
  if (const int code = MPI_Comm_size(MPI_COMM_WORLD, size)) return code;
  int* value = nullptr;
  int found = 0;
  const int code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  *tag_upper_bound = found ? *value : 32767;
  return code;
}

int host(int* rank, int* size) {
  MPI_Comm communicator = MPI_COMM_NULL;
  if (const int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &communicator))
    return code;
  int code = MPI_Comm_rank(communicator, rank);
  if (!code) code = MPI_Comm_size(communicator, size);
  MPI_Comm_free(&communicator);
  return code;
}

int error_text(int code, char* text) {
  char buffer[MPI_MAX_ERROR_STRING];
  int length = 0;
  const int failed = MPI_Error_string(code, buffer, &length);
  if (failed) length = 0;
  const auto copied = static_cast<std::size_t>(length < 255 ? length : 255);
  std::memcpy(text, buffer, copied);
  text[copied] = '\0';
  return failed;
}

int create_communicator(const int* ranks, int count, int tag, Communicator* created) {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  if (const int code = MPI_Comm_group(MPI_COMM_WORLD, &all)) return code;
  int code = MPI_Group_incl(all, count, ranks, &some);
  MPI_Comm communicator = MPI_COMM_NULL;
  if (!code) code = MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &communicator);
  if (!code) code = MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  *created = number_of(communicator);
  if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
  MPI_Group_free(&all);
  return code;
}

int broadcast_in_world(void* data, int bytes, int root) {
  return MPI_Bcast(data, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

int start_unequal(const MpiFunctions::Collective& c, const void* input, MPI_Datatype type, MPI_Comm communicator,
                  MPI_Request* request) {
  switch (c.kind) {
    case OpKind::allgather:
      return MPI_Iallgatherv(input, c.count, type, c.output, c.output_counts, c.output_offsets, type, communicator,
                             request);
    case OpKind::gather:
      return MPI_Igatherv(input, c.count, type, c.output, c.output_counts, c.output_offsets, type, c.root, communicator,
                          request);
    case OpKind::scatter:
      return MPI_Iscatterv(input, c.input_counts, c.input_offsets, type, c.output, c.count, type, c.root, communicator,
                           request);
    case OpKind::reduce_scatter:
      return MPI_Ireduce_scatter(input, c.output, c.input_counts, type, operation_of(c.op, c.dtype), communicator,
                                 request);
    case OpKind::all_to_all:
      return MPI_Ialltoallv(input, c.input_counts, c.input_offsets, type, c.output, c.output_counts, c.output_offsets,
                            type, communicator, request);
    default:
      return MPI_ERR_OTHER;
  }
}

int start_equal(const MpiFunctions::Collective& c, const void* input, MPI_Datatype type, MPI_Comm communicator,
                MPI_Request* request) {
  switch (c.kind) {
    case OpKind::allreduce:
      return MPI_Iallreduce(input, c.output, c.count, type, operation_of(c.op, c.dtype), communicator, request);
    case OpKind::reduce:
      return MPI_Ireduce(input, c.output, c.count, type, operation_of(c.op, c.dtype), c.root, communicator, request);
    case OpKind::broadcast:
      return MPI_Ibcast(c.output, c.count, type, c.root, communicator, request);
    case OpKind::allgather:
      return MPI_Iallgather(input, c.count, type, c.output, c.count, type, communicator, request);
    case OpKind::gather:
      return MPI_Igather(input, c.count, type, c.output, c.count, type, c.root, communicator, request);
    case OpKind::scatter:
      return MPI_Iscatter(input, c.count, type, c.output, c.count, type, c.root, communicator, request);
    case OpKind::reduce_scatter:
      return MPI_Ireduce_scatter_block(input, c.output, c.count, type, operation_of(c.op, c.dtype), communicator,
                                       request);
    case OpKind::all_to_all:
      return MPI_Ialltoall(input, c.count, type, c.output, c.count, type, communicator, request);
    case OpKind::barrier:
      return MPI_Ibarrier(communicator, request);
    default:
      return MPI_ERR_OTHER;
  }
}

int start(Communicator communicator, const MpiFunctions::Collective* collective, Request* started) {
  const auto& c = *collective;
  const bool in_place = !c.input && (c.kind == OpKind::allreduce || c.kind == OpKind::reduce);
  const void* const input = in_place ? MPI_IN_PLACE : c.input;
  const bool unequal = c.input_counts || c.output_counts;
  auto request = MPI_REQUEST_NULL;
  const int code =
      (unequal ? start_unequal : start_equal)(c, input, type_of(c.dtype), handle_of<MPI_Comm>(communicator), &request);
  *started = number_of(request);
  return code;
}

int send(Communicator communicator, const void* data, int bytes, int destination, int tag, Request* started) {
  auto request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, destination, tag, handle_of<MPI_Comm>(communicator), &request);
  *started = number_of(request);
  return code;
}

int receive(Communicator communicator, void* data, int bytes, int source, int tag, Request* started) {
  auto request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, source < 0 ? MPI_ANY_SOURCE : source, tag,
                             handle_of<MPI_Comm>(communicator), &request);
  *started = number_of(request);
  return code;
}

int test_all(int count, Request* requests, bool* finished) {
  std::array<MPI_Request, 4> handles;
  for (int i = 0; i < count; ++i) handles[static_cast<std::size_t>(i)] = handle_of<MPI_Request>(requests[i]);
  int done = 0;
  const int code = MPI_Testall(count, handles.data(), &done, MPI_STATUSES_IGNORE);
  for (int i = 0; i < count; ++i) requests[i] = number_of(handles[static_cast<std::size_t>(i)]);
  *finished = done != 0;
  return code;
}

int test_receive(Request* request, bool* finished, int* source, int* bytes) {
  auto handle = handle_of<MPI_Request>(*request);
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&handle, &done, &status);
  *request = number_of(handle);
  *finished = done != 0;
  if (code || !done) return code;
  *source = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, bytes);
}

int cancel_receive(Request* request) {
  auto handle = handle_of<MPI_Request>(*request);
  if (handle == MPI_REQUEST_NULL) return MPI_SUCCESS;
  if (const int code = MPI_Cancel(&handle)) return code;
  const int code = MPI_Wait(&handle, MPI_STATUS_IGNORE);
  *request = number_of(handle);
  return code;
}

int plain_allreduce(Communicator communicator, float* data, int count) {
  return MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, handle_of<MPI_Comm>(communicator));
}

int plain_iallreduce(Communicator communicator, float* data, int count) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (const int code =
          MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, handle_of<MPI_Comm>(communicator), &request))
    return code;
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

}  // namespace
}  // namespace ddprun::comm

extern "C" [[gnu::visibility("default")]] const ddprun::comm::MpiFunctions ddprun_mpi_functions;
const ddprun::comm::MpiFunctions ddprun_mpi_functions = {
    ddprun::comm::MpiFunctions::current_version,
    DDPRUN_MPI_NAME,
    ddprun::comm::initialize,
    ddprun::comm::finalize,
    ddprun::comm::world,
    ddprun::comm::host,
    ddprun::comm::error_text,
    ddprun::comm::create_communicator,
    ddprun::comm::broadcast_in_world,
    ddprun::comm::start,
    ddprun::comm::send,
    ddprun::comm::receive,
    ddprun::comm::test_all,
    ddprun::comm::test_receive,
    ddprun::comm::cancel_receive,
    ddprun::comm::plain_allreduce,
    ddprun::comm::plain_iallreduce,
};
