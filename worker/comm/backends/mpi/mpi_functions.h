#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// The calls by threads that MPI allows, as MPI_THREAD_SINGLE and so on: from one thread (single, funneled), from any
// one at a time (serialized), from any (multiple).
enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };

// The functions that a module (mpi_module.cc) offers: MPI without MPI's types, whose sizes and values differ between
// Open MPI and MPICH. There is one module for each; all are compiled from one source.
//
// Ownership: communicators and requests are handles of MPI; a request is over once test says so.
// Threads: as the provided level allows; with multiple, create_communicator may run beside other calls, of which there
// is one at a time. Errors: functions return 0 or MPI's error code, for error_text.
struct MpiFunctions {
  static constexpr int current_version = 2;
  static constexpr const char* symbol = "ddprun_mpi_functions";

  using Communicator = std::uint64_t;
  using Request = std::uint64_t;

  // A collective of a rank. The sizes of parts are in elements, and null when they are equal.
  struct Collective {
    OpKind kind;
    DType dtype;
    ReduceOp op;
    const void* input;  // null if the operation is in place
    void* output;
    int count;  // elements of the buffer, or of a rank's part
    int root;
    const int *input_counts, *input_offsets, *output_counts, *output_offsets;
  };
  // output := op(left, right), for types that MPI lacks.
  using Reduce = void (*)(ReduceOp op, DType dtype, void* output, const void* left, const void* right,
                          std::size_t count);

  int version;
  const char* name;  // the MPI that it was compiled for

  // MPI_Init_thread, unless the program has called it: then by_program is set, and provided is what MPI gave the
  // program.
  int (*initialize)(Reduce reduce, ThreadLevel wanted, ThreadLevel* provided, bool* by_program);
  int (*finalize)();
  int (*world)(int* rank, int* size, int* tag_upper_bound);
  // Finds rank and size among the world's processes on this host. Blocks until all of the world have called it.
  int (*host)(int* rank, int* size);
  // text: room for 256 bytes.
  int (*error_text)(int code, char* text);

  // ranks: their numbers in the world. Blocks until all of them have called it with that tag.
  int (*create_communicator)(const int* ranks, int count, int tag, Communicator* created);
  int (*broadcast_in_world)(void* data, int bytes, int root);
  int (*start)(Communicator communicator, const Collective* collective, Request* request);
  int (*send)(Communicator communicator, const void* data, int bytes, int destination, int tag, Request* request);
  // source: a rank, or -1 for any rank.
  int (*receive)(Communicator communicator, void* data, int bytes, int source, int tag, Request* request);
  // Finds whether all have finished; progresses them.
  int (*test_all)(int count, Request* requests, bool* finished);
  // Does the same for one receive; sets source and bytes once it has finished.
  int (*test_receive)(Request* request, bool* finished, int* source, int* bytes);
  // Cancels a receive; returns once its memory is no longer used.
  int (*cancel_receive)(Request* request);

  // The plain calls, to measure against: MPI_Allreduce, and MPI_Iallreduce with MPI_Wait, of float32 in place.
  int (*plain_allreduce)(Communicator communicator, float* data, int count);
  int (*plain_iallreduce)(Communicator communicator, float* data, int count);
};

}  // namespace ddprun::comm
