// ddprun's process groups for C, and for every language that calls C: a thin layer over worker/comm, in the shared
// library libddprun_c. comm's headers say what the operations mean (process_group.h); this one says how C sees them.
//
// Ownership: what a function creates is the caller's until it calls the _free function of that type. The memory of an
// operation is in use until the operation has finished. A work may outlive its group.
// Threads: those of ProcessGroup: every function is thread-safe, apart from the _free functions; every rank calls the
// same collectives in the same order. A process that forks afterwards must not use its groups in the child.
// Errors: a function that can fail has ddprun_error as its last parameter, which it writes in any case; those that
// return a code return its code, 0 for success. No C++ exception leaves the library.
// Units: counts in elements, timeouts in milliseconds; the timeout 0 stands for the group's.
#ifndef DDPRUN_H
#define DDPRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes when a program that was compiled with this header has to be compiled again.
#define DDPRUN_ABI_VERSION 1
int32_t ddprun_abi_version(void);

enum {
  DDPRUN_OK = 0,
  DDPRUN_USAGE,
  DDPRUN_IO,
  DDPRUN_TIMEOUT,
  DDPRUN_UNREACHABLE,
  DDPRUN_CONNECTION_LOST,
  DDPRUN_PROTOCOL,
  DDPRUN_PEER_LOST,
  DDPRUN_MISMATCH,
  DDPRUN_ABORTED,
  DDPRUN_UNSUPPORTED,
  DDPRUN_INTERNAL,
  DDPRUN_WRONG_TYPE  // tensors of types that do not fit together; the other codes are the kinds of common/error.h
};

typedef struct ddprun_error {
  int32_t code;
  char message[1020];  // one sentence; longer ones are cut
} ddprun_error;

enum {
  DDPRUN_FLOAT32,
  DDPRUN_FLOAT64,
  DDPRUN_FLOAT16,
  DDPRUN_BFLOAT16,
  DDPRUN_INT8,
  DDPRUN_UINT8,
  DDPRUN_INT32,
  DDPRUN_INT64
};

enum {
  DDPRUN_SUM,
  DDPRUN_AVERAGE,
  DDPRUN_PRODUCT,
  DDPRUN_MIN,
  DDPRUN_MAX,
  DDPRUN_BIT_AND,
  DDPRUN_BIT_OR,
  DDPRUN_BIT_XOR,
  DDPRUN_PREMULTIPLIED_SUM
};

typedef struct ddprun_reduction {
  int32_t op;
  double factor;  // the factor of DDPRUN_PREMULTIPLIED_SUM
} ddprun_reduction;

typedef struct ddprun_span {
  void* data;
  size_t count;
  int32_t dtype;
} ddprun_span;

typedef struct ddprun_group ddprun_group;
typedef struct ddprun_work ddprun_work;
typedef struct ddprun_memory ddprun_memory;
typedef struct ddprun_store_server ddprun_store_server;

// Starts a store server in this process, for groups without another: host "" for all addresses, port 0 for a free one.
ddprun_store_server* ddprun_store_serve(const char* host, uint16_t port, ddprun_error* error);
uint16_t ddprun_store_port(const ddprun_store_server* server);
// Announces that the server ends in order: once they know it, groups over it continue when it closes, and fail no
// longer. Call it after leaving all groups over it. Returns 1 once all of them know, 0 if timeout_ms passes first.
int32_t ddprun_store_announce_end(ddprun_store_server* server, int64_t timeout_ms);
// Returns, after the announcement, 1 once all have left, when the server has closed by itself; 0 if timeout_ms passes
// first. Until then the deaths of their ranks are noticed as before, so a process serves on for a while before it ends.
int32_t ddprun_store_drain(ddprun_store_server* server, int64_t timeout_ms);
// Closes the server, if it is not closed yet.
void ddprun_store_free(ddprun_store_server* server);
// Writes the address at which processes on host reach this one; nothing if that is this host. Sends no packet.
int32_t ddprun_address_towards(const char* host, uint16_t port, char* address, size_t bytes, ddprun_error* error);

// Zero the structure, then set what matters: NULL and 0 stand for the defaults. Strings are read only during the call.
typedef struct ddprun_group_options {
  int32_t rank, size;
  const char* backend;     // auto, shm, gloo, hierarchical, ...; the same at all ranks
  const char* store_host;  // the host of a store server: ddprun's or PyTorch's
  uint16_t store_port;
  const char* prefix;             // the beginning of the group's keys in the store: its own, equal at all ranks
  int32_t store_rank;             // the rank whose process serves the store; -1 if none does, or it is not known
  int64_t timeout_ms;             // the limit of one operation, and of forming the group
  int64_t freeze_bound_ms;        // the time that a rank may show no sign of life; negative means no limit
  const char* network_interface;  // addresses or interfaces on which peers reach this process
  const char* label;              // the name of this rank in messages about a failure, besides its number
} ddprun_group_options;

// Joins a group; blocks until all ranks have joined. Returns NULL when that fails.
ddprun_group* ddprun_group_join(const ddprun_group_options* options, ddprun_error* error);
// Leaves the group; operations in progress end with an error.
void ddprun_group_free(ddprun_group* group);

int32_t ddprun_group_rank(const ddprun_group* group);
int32_t ddprun_group_size(const ddprun_group* group);
const char* ddprun_group_backend(const ddprun_group* group);
uint64_t ddprun_group_bytes_sent(const ddprun_group* group);
// Ends every operation of this process, and all later ones, with DDPRUN_ABORTED. Any thread may call it.
void ddprun_group_abort(ddprun_group* group, const char* reason);
// Returns why the group is broken; DDPRUN_OK if it is not.
int32_t ddprun_group_failure(const ddprun_group* group, ddprun_error* error);

// A rank's membership of a job whose lost ranks ddprun replaces alone (--max_restarts), while the others keep their
// processes: worker/recovery/recovery.h says what the functions mean. Every rank has the whole state of the training.
// Ownership: the recovery owns its groups, which must not be freed. The present one is valid until the next
// ddprun_recovery_recover() or ddprun_recovery_free(). Threads: one at a time.
typedef struct ddprun_recovery ddprun_recovery;

// Copies the state after this step, by operations of the group, from the rank source to those that receive it. Called
// at all ranks. Returns 0 once that is done. After any other value the ranks form the next group if this one has
// failed; otherwise ddprun_recovery_recover() fails.
typedef int32_t (*ddprun_copy_state)(void* context, ddprun_group* group, int64_t step, int32_t source,
                                     int32_t receives);

// The rank, the size of the groups and the store are those of the environment, and those of the options are not used.
// join_timeout_ms: the time in which all members of a new group have to join. DDPRUN_USAGE: the process is none that
// ddprun replaces alone.
ddprun_recovery* ddprun_recovery_begin(const ddprun_group_options* options, int64_t join_timeout_ms,
                                       ddprun_error* error);
// Leaves the group. Without ddprun_recovery_finish() before, the others wait for a replacement.
void ddprun_recovery_free(ddprun_recovery* recovery);
// Returns 1 in a process that joins the others later, and calls ddprun_recovery_recover() first.
int32_t ddprun_recovery_is_replacement(const ddprun_recovery* recovery);
// Forms the group of all ranks that were started together.
ddprun_group* ddprun_recovery_form_first(ddprun_recovery* recovery, ddprun_error* error);
// Returns the generation of the present group, the same at all ranks: 0 for the first, more for each that follows.
uint64_t ddprun_recovery_generation(const ddprun_recovery* recovery);
// Declares that from now on this rank can recover.
int32_t ddprun_recovery_announce(ddprun_recovery* recovery, ddprun_error* error);
// To be called whenever this rank has applied a step.
void ddprun_recovery_on_applied(ddprun_recovery* recovery, int64_t step);
// To be called once the group has failed by the loss of a rank, or to join: returns the next group, in which all ranks
// have the state after *step. NULL with DDPRUN_OK: the others are done, or go on without this rank.
ddprun_group* ddprun_recovery_recover(ddprun_recovery* recovery, const char* reason, ddprun_copy_state copy,
                                      void* context, int64_t* step, ddprun_error* error);
// Declares that the run is done.
void ddprun_recovery_finish(ddprun_recovery* recovery);
// Returns 1 for the code of a failure that follows from the loss of another rank.
int32_t ddprun_is_consequence(int32_t code);

// Returns zeroed, page-aligned memory that operations of the group access at the least cost. It may outlive the group.
ddprun_memory* ddprun_memory_allocate(ddprun_group* group, size_t bytes, ddprun_error* error);
void* ddprun_memory_data(const ddprun_memory* memory);
void ddprun_memory_free(ddprun_memory* memory);

// Operations. With work NULL they return when the operation has finished; otherwise at once, and *work is its handle.
// input may equal output. counts: the elements of each rank's part, or NULL for equal parts.
#define DDPRUN_CALL int64_t timeout_ms, ddprun_work **work, ddprun_error *error

int32_t ddprun_allreduce(ddprun_group* group, ddprun_span input, ddprun_span output, ddprun_reduction reduction,
                         DDPRUN_CALL);
int32_t ddprun_reduce(ddprun_group* group, ddprun_span input, ddprun_span output, int32_t root,
                      ddprun_reduction reduction, DDPRUN_CALL);
int32_t ddprun_broadcast(ddprun_group* group, ddprun_span buffer, int32_t root, DDPRUN_CALL);
int32_t ddprun_allgather(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts, DDPRUN_CALL);
int32_t ddprun_reduce_scatter(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts,
                              ddprun_reduction reduction, DDPRUN_CALL);
int32_t ddprun_gather(ddprun_group* group, ddprun_span input, ddprun_span output, const size_t* counts, int32_t root,
                      DDPRUN_CALL);
int32_t ddprun_scatter(ddprun_group* group, ddprun_span input, const size_t* counts, ddprun_span output, int32_t root,
                       DDPRUN_CALL);
// Both counts are given, or neither.
int32_t ddprun_all_to_all(ddprun_group* group, ddprun_span input, const size_t* input_counts, ddprun_span output,
                          const size_t* output_counts, DDPRUN_CALL);
int32_t ddprun_barrier(ddprun_group* group, DDPRUN_CALL);

// Each of these is one operation on n spans.
int32_t ddprun_allreduce_coalesced(ddprun_group* group, const ddprun_span* buffers, size_t n,
                                   ddprun_reduction reduction, DDPRUN_CALL);
int32_t ddprun_allgather_coalesced(ddprun_group* group, const ddprun_span* inputs, const ddprun_span* outputs, size_t n,
                                   DDPRUN_CALL);
int32_t ddprun_reduce_scatter_coalesced(ddprun_group* group, const ddprun_span* inputs, const ddprun_span* outputs,
                                        size_t n, ddprun_reduction reduction, DDPRUN_CALL);

// source: a rank, or -1 for any rank; ddprun_work_source() tells which it was.
int32_t ddprun_send(ddprun_group* group, ddprun_span buffer, int32_t destination, int32_t tag, DDPRUN_CALL);
int32_t ddprun_recv(ddprun_group* group, ddprun_span buffer, int32_t source, int32_t tag, DDPRUN_CALL);

// Operations as those of torch.distributed, for back ends of it: they check their arguments, with its words, and take
// lists of tensors, and elements of all of PyTorch's types.
enum {
  DDPRUN_ALL_REDUCE,
  DDPRUN_ALL_REDUCE_COALESCED,
  DDPRUN_REDUCE,
  DDPRUN_BROADCAST,
  DDPRUN_ALL_GATHER,
  DDPRUN_ALL_GATHER_INTO_TENSOR,
  DDPRUN_ALL_GATHER_INTO_TENSOR_COALESCED,
  DDPRUN_GATHER,
  DDPRUN_GATHER_SINGLE,
  DDPRUN_SCATTER,
  DDPRUN_REDUCE_SCATTER,
  DDPRUN_REDUCE_SCATTER_TENSOR,
  DDPRUN_REDUCE_SCATTER_TENSOR_COALESCED,
  DDPRUN_ALL_TO_ALL,
  DDPRUN_ALL_TO_ALL_SINGLE,
  DDPRUN_SEND,
  DDPRUN_RECV,
  DDPRUN_BARRIER
};
// Returns PyTorch's name of an operation, such as all_reduce; NULL if there is no such operation.
const char* ddprun_operation_name(int32_t operation);

// A dense tensor in the host's memory. Types are PyTorch's numbers: c10::ScalarType.
typedef struct ddprun_tensor {
  void* data;     // contiguous; of a reduction, converted to the type that ddprun_reduced_as() returns
  int64_t count;  // of elements
  int64_t rows;   // the size of the first dimension; -1 if there is none
  int32_t type;   // before the conversion
  int32_t element_bytes;
} ddprun_tensor;
// Returns the type by which elements of a type are reduced; most are by their own.
int32_t ddprun_reduced_as(int32_t type);

typedef struct ddprun_tensor_arguments {
  int32_t lists;  // how many lists of tensors the caller was given, by an operation on a list
  int32_t peer;   // the root, destination or source; -1 for any source
  int32_t tag;
  ddprun_reduction reduction;
  const int64_t* input_splits;  // rows of each rank's part; none: equal parts
  size_t input_split_count;
  const int64_t* output_splits;
  size_t output_split_count;
} ddprun_tensor_arguments;

// Tensors that are input and output are among the outputs. Results are there after ddprun_work_wait(). The structures
// are read only during the call.
int32_t ddprun_tensor_operation(ddprun_group* group, int32_t operation, const ddprun_tensor* inputs, size_t input_count,
                                const ddprun_tensor* outputs, size_t output_count,
                                const ddprun_tensor_arguments* arguments, DDPRUN_CALL);

// Waits for the end. Returns DDPRUN_TIMEOUT when timeout_ms (negative: none) passes first: the operation continues.
int32_t ddprun_work_wait(ddprun_work* work, int64_t timeout_ms, ddprun_error* error);
// Returns 1 once ddprun_work_wait() would not block, also after a failure.
int32_t ddprun_work_done(const ddprun_work* work);
int32_t ddprun_work_source(const ddprun_work* work);
void ddprun_work_free(ddprun_work* work);

#ifdef __cplusplus
}
#endif

#endif
