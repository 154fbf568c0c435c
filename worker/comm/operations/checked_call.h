#pragma once

#include <chrono>
#include <vector>

#include "worker/comm/operations/call.h"

// These make a Call of the arguments of ProcessGroup's functions, and throw Errc::usage naming the wrong argument.
namespace ddprun::comm {

Call checked_allreduce(ConstSpan input, Span output, Reduction reduction, OpOptions options);
Call checked_reduce(ConstSpan input, Span output, int root, Reduction reduction, RankInfo rank_info, OpOptions options);
Call checked_broadcast(Span buffer, int root, RankInfo rank_info, OpOptions options);
Call checked_send(ConstSpan buffer, int destination, int tag, RankInfo rank_info, OpOptions options);
Call checked_recv(Span buffer, int source, int tag, RankInfo rank_info, OpOptions options);

// counts: null when all parts are equal.
Call checked_allgather(ConstSpan input, Span output, const Counts* counts, RankInfo rank_info, OpOptions options);
Call checked_reduce_scatter(ConstSpan input, Span output, const Counts* counts, Reduction reduction, RankInfo rank_info,
                            OpOptions options);
Call checked_gather(ConstSpan input, Span output, const Counts* counts, int root, RankInfo rank_info,
                    OpOptions options);
Call checked_scatter(ConstSpan input, Span output, const Counts* counts, int root, RankInfo rank_info,
                     OpOptions options);
Call checked_all_to_all(ConstSpan input, Span output, RankInfo rank_info, OpOptions options);
Call checked_all_to_allv(ConstSpan input, const Counts& input_counts, Span output, const Counts& output_counts,
                         RankInfo rank_info, OpOptions options);

Call checked_allreduce(const std::vector<Span>& buffers, Reduction reduction, OpOptions options);
Call checked_broadcast(const std::vector<Span>& buffers, int root, RankInfo rank_info, OpOptions options);
Call checked_allgather(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs, RankInfo rank_info,
                       OpOptions options);
Call checked_reduce_scatter(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs, Reduction reduction,
                            RankInfo rank_info, OpOptions options);

// Throws for a timeout of an operation's own that is not positive.
void check_timeout(const Operation& operation, std::chrono::milliseconds timeout);

}  // namespace ddprun::comm
