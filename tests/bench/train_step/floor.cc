#include "tests/bench/train_step/floor.h"

#include <cstring>
#include <unordered_map>

#include <dnnl.hpp>

namespace ddprun::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;
constexpr auto algorithm = dnnl::algorithm::convolution_auto;

struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
  int times = 1;
};

memory zeroed(const memory::desc& desc, const dnnl::engine& engine) {
  memory result(desc, engine);
  std::memset(result.get_data_handle(), 0, desc.get_size());
  return result;
}

Call product(const dnnl::engine& engine, std::int64_t m, std::int64_t n, std::int64_t k, Tag a_tag, Tag b_tag,
             int times) {
  const memory::desc a({m, k}, f32, a_tag), b({k, n}, f32, b_tag), c({m, n}, f32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc desc(engine, a, b, c);
#else
  const dnnl::matmul::primitive_desc desc({a, b, c}, engine);
#endif
  return {dnnl::matmul(desc),
          {{DNNL_ARG_SRC, zeroed(a, engine)}, {DNNL_ARG_WEIGHTS, zeroed(b, engine)}, {DNNL_ARG_DST, zeroed(c, engine)}},
          times};
}

void add(std::vector<Call>& calls, const dnnl::engine& engine, const LinearProducts& l) {
  calls.push_back(product(engine, l.rows, l.out, l.in, Tag::ab, Tag::ba, l.times));
  if (l.input_gradient) calls.push_back(product(engine, l.rows, l.in, l.out, Tag::ab, Tag::ab, l.times));
  calls.push_back(product(engine, l.out, l.in, l.rows, Tag::ba, Tag::ab, l.times));
}

void add(std::vector<Call>& calls, const dnnl::engine& engine, const Convolutions& c) {
  const std::int64_t out_size = (c.size + 2 * c.padding - c.kernel) / c.stride + 1;
  const memory::desc x({c.batch, c.in, c.size, c.size}, f32, Tag::any);
  const memory::desc weight({c.out, c.in, c.kernel, c.kernel}, f32, Tag::any);
  const memory::desc y({c.batch, c.out, out_size, out_size}, f32, Tag::any);
  const memory::dims stride{c.stride, c.stride}, padding{c.padding, c.padding};
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_forward::primitive_desc forward(engine, dnnl::prop_kind::forward_training, algorithm, x,
                                                          weight, y, stride, padding, padding);
  const dnnl::convolution_backward_data::primitive_desc data(engine, algorithm, x, weight, y, stride, padding, padding,
                                                             forward);
  const dnnl::convolution_backward_weights::primitive_desc weights(engine, algorithm, x, weight, y, stride, padding,
                                                                   padding, forward);
#else
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x, weight, y, stride, padding, padding}, engine);
  const dnnl::convolution_backward_data::primitive_desc data({algorithm, x, weight, y, stride, padding, padding},
                                                             engine, forward);
  const dnnl::convolution_backward_weights::primitive_desc weights({algorithm, x, weight, y, stride, padding, padding},
                                                                   engine, forward);
#endif
  calls.push_back({dnnl::convolution_forward(forward),
                   {{DNNL_ARG_SRC, zeroed(forward.src_desc(), engine)},
                    {DNNL_ARG_WEIGHTS, zeroed(forward.weights_desc(), engine)},
                    {DNNL_ARG_DST, zeroed(forward.dst_desc(), engine)}},
                   c.times});
  if (c.input_gradient)
    calls.push_back({dnnl::convolution_backward_data(data),
                     {{DNNL_ARG_DIFF_DST, zeroed(data.diff_dst_desc(), engine)},
                      {DNNL_ARG_WEIGHTS, zeroed(data.weights_desc(), engine)},
                      {DNNL_ARG_DIFF_SRC, zeroed(data.diff_src_desc(), engine)}},
                     c.times});
  calls.push_back({dnnl::convolution_backward_weights(weights),
                   {{DNNL_ARG_SRC, zeroed(weights.src_desc(), engine)},
                    {DNNL_ARG_DIFF_DST, zeroed(weights.diff_dst_desc(), engine)},
                    {DNNL_ARG_DIFF_WEIGHTS, zeroed(weights.diff_weights_desc(), engine)}},
                   c.times});
}

}  // namespace

struct ArithmeticFloor::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<Call> calls;
};

ArithmeticFloor::ArithmeticFloor(const Arithmetic& arithmetic) : state_(std::make_unique<State>()) {
  for (const auto& linear : arithmetic.linears) add(state_->calls, state_->engine, linear);
  for (const auto& convolution : arithmetic.convolutions) add(state_->calls, state_->engine, convolution);
}
ArithmeticFloor::~ArithmeticFloor() = default;

void ArithmeticFloor::run() {
  for (Call& call : state_->calls)
    for (int i = 0; i < call.times; ++i) call.primitive.execute(state_->stream, call.arguments);
  state_->stream.wait();
}

}  // namespace ddprun::bench
