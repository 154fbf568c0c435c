/* A rank of a job, in C: what ddprun.h promises, with each error printed. Argument: what the rank does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddprun/worker/capi/ddprun.h"

static int fail(const char* what, const ddprun_error* error) {
  fprintf(stderr, "%s: code %d: %s\n", what, error->code, error->message);
  return 1;
}

static ddprun_group* join(ddprun_error* error) {
  ddprun_group_options options;
  memset(&options, 0, sizeof options);
  options.rank = atoi(getenv("RANK"));
  options.size = atoi(getenv("WORLD_SIZE"));
  options.store_host = getenv("MASTER_ADDR");
  options.store_port = (uint16_t)atoi(getenv("MASTER_PORT"));
  options.store_rank = -1;
  options.timeout_ms = 60000;
  return ddprun_group_join(&options, error);
}

enum { TORCH_INT = 3, TORCH_FLOAT = 6, TORCH_UINT64 = 29 };

static int run_on_tensors(ddprun_group* group, int rank, int size, ddprun_error* error) {
  int32_t numbers[2] = {rank, rank == 0 ? -1 : 0};
  uint64_t big = ((uint64_t)1 << 63) + (uint64_t)rank;
  float values[3 * 16];
  ddprun_tensor list[16];
  const ddprun_tensor integers = {numbers, 2, 2, TORCH_INT, 4}, unsigned_one = {&big, 1, -1, TORCH_UINT64, 8};
  ddprun_tensor_arguments arguments;
  ddprun_work* work = NULL;
  int r;
  memset(&arguments, 0, sizeof arguments);
  if (strcmp(ddprun_operation_name(DDPRUN_REDUCE_SCATTER_TENSOR), "reduce_scatter_tensor") != 0 ||
      ddprun_operation_name(DDPRUN_BARRIER + 1))
    return fprintf(stderr, "wrong names of operations\n"), 1;

  /* The average of integers is towards zero. */
  arguments.reduction.op = DDPRUN_AVERAGE;
  if (ddprun_tensor_operation(group, DDPRUN_ALL_REDUCE, NULL, 0, &integers, 1, &arguments, 0, NULL, error))
    return fail("average", error);
  if (numbers[0] != (size - 1) / 2 || numbers[1] != 0) return fprintf(stderr, "wrong average\n"), 1;
  arguments.reduction.op = DDPRUN_MAX;
  if (ddprun_tensor_operation(group, DDPRUN_ALL_REDUCE, NULL, 0, &unsigned_one, 1, &arguments, 0, &work, error) ||
      ddprun_work_wait(work, -1, error))
    return fail("maximum", error);
  ddprun_work_free(work);
  if (big != ((uint64_t)1 << 63) + (uint64_t)size - 1) return fprintf(stderr, "wrong maximum\n"), 1;

  /* A list whose tensors are apart; rank r's has r + 1 elements. */
  for (r = 0; r < size; ++r) list[r] = (ddprun_tensor){values + 3 * (size - 1 - r), r + 1, r + 1, TORCH_FLOAT, 4};
  arguments.lists = 1;
  {
    float own[3] = {(float)rank, (float)rank, (float)rank};
    const ddprun_tensor input = {own, rank + 1, rank + 1, TORCH_FLOAT, 4};
    if (ddprun_tensor_operation(group, DDPRUN_ALL_GATHER, &input, 1, list, (size_t)size, &arguments, 0, NULL, error))
      return fail("gather into a list", error);
  }
  for (r = 0; r < size; ++r)
    if (values[3 * (size - 1 - r) + r] != (float)r) return fprintf(stderr, "wrong list\n"), 1;

  if (ddprun_tensor_operation(group, DDPRUN_REDUCE_SCATTER_TENSOR, list, 1, &integers, 1, &arguments, 0, NULL, error) !=
          DDPRUN_WRONG_TYPE ||
      strcmp(error->message, "reduce_scatter_tensor of tensors of different types: Float and Int") != 0)
    return fail("types that do not fit", error);
  if (ddprun_tensor_operation(group, 99, NULL, 0, NULL, 0, &arguments, 0, NULL, error) != DDPRUN_USAGE)
    return fail("no such operation", error);
  return 0;
}

static int run(ddprun_group* group, int rank, int size, ddprun_error* error) {
  float values[3] = {1.0f, (float)rank, 2.0f};
  float gathered[2 * 16];
  const ddprun_span span = {values, 3, DDPRUN_FLOAT32};
  const ddprun_reduction sum = {DDPRUN_SUM, 1};
  ddprun_work* work = NULL;
  ddprun_memory* memory;
  int r;
  if (ddprun_allreduce(group, span, span, sum, 0, NULL, error)) return fail("blocking", error);
  if (values[0] != size || values[1] != size * (size - 1) / 2) return fprintf(stderr, "wrong sum\n"), 1;

  values[0] = (float)rank;
  if (ddprun_allgather(group, (ddprun_span){values, 2, DDPRUN_FLOAT32},
                       (ddprun_span){gathered, 2u * (size_t)size, DDPRUN_FLOAT32}, NULL, 0, &work, error))
    return fail("allgather", error);
  if (ddprun_work_wait(work, -1, error)) return fail("wait", error);
  if (!ddprun_work_done(work)) return fprintf(stderr, "not done\n"), 1;
  ddprun_work_free(work);
  for (r = 0; r < size; ++r)
    if (gathered[2 * r] != (float)r) return fprintf(stderr, "wrong part %d\n", r), 1;

  memory = ddprun_memory_allocate(group, 4096, error);
  if (!memory) return fail("allocate", error);
  ((float*)ddprun_memory_data(memory))[0] = 3.0f;
  const ddprun_span registered = {ddprun_memory_data(memory), 1024, DDPRUN_FLOAT32};
  if (ddprun_allreduce(group, registered, registered, sum, 0, NULL, error)) return fail("registered", error);
  if (((float*)ddprun_memory_data(memory))[0] != 3.0f * (float)size) return fprintf(stderr, "wrong sum\n"), 1;
  ddprun_memory_free(memory);

  if (rank == 0) {
    for (r = 1; r < size; ++r) {
      if (ddprun_recv(group, (ddprun_span){values, 1, DDPRUN_FLOAT32}, -1, 5, 0, &work, error))
        return fail("recv", error);
      if (ddprun_work_wait(work, -1, error)) return fail("wait for recv", error);
      if (values[0] != (float)ddprun_work_source(work)) return fprintf(stderr, "wrong source\n"), 1;
      ddprun_work_free(work);
    }
  } else if (ddprun_send(group, (ddprun_span){values, 1, DDPRUN_FLOAT32}, 0, 5, 0, NULL, error)) {
    return fail("send", error);
  }

  /* A mistake of the caller's is an error, and the group remains usable. */
  if (ddprun_broadcast(group, span, size, 0, NULL, error) != DDPRUN_USAGE) return fail("a root that is no rank", error);
  if (ddprun_broadcast(group, (ddprun_span){values, 3, 99}, 0, 0, NULL, error) != DDPRUN_USAGE)
    return fail("no such type", error);
  if (ddprun_barrier(group, 0, NULL, error)) return fail("barrier", error);
  if (run_on_tensors(group, rank, size, error)) return 1;
  printf("rank %d: the results are right over %s\n", rank, ddprun_group_backend(group));
  return 0;
}

static int32_t copy_sum(void* sum, ddprun_group* group, int64_t step, int32_t source, int32_t receives) {
  ddprun_error error;
  (void)step, (void)receives;
  return ddprun_broadcast(group, (ddprun_span){sum, 1, DDPRUN_FLOAT32}, source, 0, NULL, &error);
}

/* Rank 1 is lost after ten steps; the one that replaces it gets the sum from the others. */
static int recover(ddprun_recovery* recovery, int rank, int size, ddprun_error* error) {
  const ddprun_reduction add = {DDPRUN_SUM, 1};
  const int joins = ddprun_recovery_is_replacement(recovery);
  float sum = 0;
  int64_t step = 0;
  ddprun_group* group = joins ? NULL : ddprun_recovery_form_first(recovery, error);
  if (!joins && !group) return fail("form", error);
  if (ddprun_recovery_announce(recovery, error)) return fail("announce", error);
  while (step < 20) {
    float one = 1;
    const ddprun_span span = {&one, 1, DDPRUN_FLOAT32};
    if (!group) group = ddprun_recovery_recover(recovery, error->message, copy_sum, &sum, &step, error);
    if (!group) return fail("recover", error);
    if (step == 10 && rank == 1 && !joins) raise(SIGKILL);
    if (ddprun_allreduce(group, span, span, add, 0, NULL, error)) {
      if (!ddprun_is_consequence(error->code)) return fail("allreduce", error);
      group = NULL;
      continue;
    }
    sum += one;
    ddprun_recovery_on_applied(recovery, ++step);
  }
  if (ddprun_group_rank(group) != rank || ddprun_group_size(group) != size || ddprun_recovery_generation(recovery) != 1)
    return fprintf(stderr, "not the group of generation 1\n"), 1;
  ddprun_recovery_finish(recovery);
  printf("rank %d: the sum is %g\n", rank, (double)sum);
  return 0;
}

static int run_recovery(void) {
  ddprun_error error;
  ddprun_group_options options;
  ddprun_recovery* recovery;
  int code;
  memset(&options, 0, sizeof options);
  recovery = ddprun_recovery_begin(&options, 0, &error);
  if (!recovery) return fail("begin", &error);
  code = recover(recovery, atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")), &error);
  ddprun_recovery_free(recovery);
  return code;
}

int main(int argc, char** argv) {
  ddprun_error error;
  ddprun_group* group;
  int code;
  if (argc > 1 && strcmp(argv[1], "recover") == 0) return run_recovery();
  group = join(&error);
  if (!group) return fail("join", &error);
  if (argc > 1 && strcmp(argv[1], "die") == 0) {
    if (atoi(getenv("RANK")) == 1) raise(SIGKILL);
    code = ddprun_barrier(group, 0, NULL, &error);
    fail("a peer died", &error);
    code = code == DDPRUN_PEER_LOST && ddprun_group_failure(group, &error) == DDPRUN_PEER_LOST ? 0 : 1;
  } else {
    code = run(group, atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")), &error);
  }
  ddprun_group_free(group);
  return code;
}
