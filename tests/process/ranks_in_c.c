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
      if (ddprun_recv(group, (ddprun_span){values, 1, DDPRUN_FLOAT32}, -1, 5, 0, &work, error)) return fail("recv", error);
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
  printf("rank %d: the results are right over %s\n", rank, ddprun_group_backend(group));
  return 0;
}

int main(int argc, char** argv) {
  ddprun_error error;
  ddprun_group* const group = join(&error);
  int code;
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
