#include "ddprun/worker/tensor/onednn/conv.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "ddprun/common/error.h"

// Convolution through oneDNN, which this folder alone knows. Its 2.x describes an operation in two steps, 3.x in one:
// make_* below hold the difference.
namespace ddprun::onednn {
namespace {

using dnnl::memory;
using kernels::ConvGeometry;
using Tag = memory::format_tag;

memory::desc plain_desc(const memory::dims& sizes, Tag tag) {
  return {sizes, memory::data_type::f32, tag};
}
memory::desc any_desc(const memory::dims& sizes) {
  return plain_desc(sizes, Tag::any);
}

// The layout in which a convolution wants its images. oneDNN's own choice, blocks of 16 channels, pads the 10 and 20
// channels of a small net; with channels last its backward pass is 1.6 times faster (conv2 of the CNN, batch 64, one
// thread of a Sapphire Rapids, reorders counted: 0.95 against 1.50 ms; forward takes 0.45 ms either way). A single
// channel is a case of its own that only oneDNN's choice serves well: 0.24 against 0.37 ms forward.
memory::desc image_desc(const memory::dims& x, const memory::dims& sizes) {
  return plain_desc(sizes, x[1] > 1 ? Tag::nhwc : Tag::any);
}

// The sizes of a convolution's operands and of its window, as oneDNN wants them.
struct Sizes {
  explicit Sizes(const ConvGeometry& g)
      : x{g.batch, g.in_channels, g.height, g.width},
        weight(g.groups == 1 ? memory::dims{g.out_channels, g.in_channels, g.kernel_h, g.kernel_w}
                             : memory::dims{g.groups, g.out_channels / g.groups, g.in_channels / g.groups, g.kernel_h,
                                            g.kernel_w}),
        bias{g.out_channels},
        y{g.batch, g.out_channels, g.out_h, g.out_w},
        stride{g.stride, g.stride},
        dilation{g.dilation - 1, g.dilation - 1},  // oneDNN counts the gaps
        before{g.padding, g.padding},
        // What the last window does not cover is negative padding at the far side.
        after{(g.out_h - 1) * g.stride + (g.kernel_h - 1) * g.dilation + 1 - g.height - g.padding,
              (g.out_w - 1) * g.stride + (g.kernel_w - 1) * g.dilation + 1 - g.width - g.padding} {}
  Tag weight_tag() const { return weight.size() == 4 ? Tag::oihw : Tag::goihw; }
  memory::dims x, weight, bias, y, stride, dilation, before, after;
};

constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc make_forward(const Sizes& s, bool bias, const dnnl::engine& engine) {
  const auto kind = dnnl::prop_kind::forward_training;
  const memory::desc bias_desc = bias ? plain_desc(s.bias, Tag::a) : memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  return {
      engine,     kind,     direct, image_desc(s.x, s.x), any_desc(s.weight), bias_desc, image_desc(s.x, s.y), s.stride,
      s.dilation, s.before, s.after};
#else
  return {{kind, direct, image_desc(s.x, s.x), any_desc(s.weight), bias_desc, image_desc(s.x, s.y), s.stride,
           s.dilation, s.before, s.after},
          engine};
#endif
}

dnnl::convolution_backward_data::primitive_desc make_backward_input(const Sizes& s, const dnnl::engine& engine) {
  const auto hint = make_forward(s, false, engine);
#if DNNL_VERSION_MAJOR >= 3
  return {
      engine,  direct, image_desc(s.x, s.x), any_desc(s.weight), image_desc(s.x, s.y), s.stride, s.dilation, s.before,
      s.after, hint};
#else
  return {
      {direct, image_desc(s.x, s.x), any_desc(s.weight), image_desc(s.x, s.y), s.stride, s.dilation, s.before, s.after},
      engine,
      hint};
#endif
}

dnnl::convolution_backward_weights::primitive_desc make_backward_weight(const Sizes& s, const dnnl::engine& engine) {
  const auto hint = make_forward(s, false, engine);
#if DNNL_VERSION_MAJOR >= 3
  return {
      engine,  direct, image_desc(s.x, s.x), any_desc(s.weight), image_desc(s.x, s.y), s.stride, s.dilation, s.before,
      s.after, hint};
#else
  return {
      {direct, image_desc(s.x, s.x), any_desc(s.weight), image_desc(s.x, s.y), s.stride, s.dilation, s.before, s.after},
      engine,
      hint};
#endif
}

// A primitive with its operands: ours are row-major, a reorder converts where the primitive chose a blocked layout.
class Plan {
 public:
  Plan(const dnnl::engine& engine, const dnnl::primitive& primitive) : engine_(engine), primitive_(primitive) {}

  void input(int name, const memory::desc& ours, const memory::desc& theirs) { add(name, ours, theirs, false); }
  void output(int name, const memory::desc& ours, const memory::desc& theirs) { add(name, ours, theirs, true); }

  // Pointers in the order of the input() and output() calls.
  void run(dnnl::stream& stream, std::initializer_list<const void*> data) {
    auto pointer = data.begin();
    for (Operand& operand : operands_) operand.ours.set_data_handle(const_cast<void*>(*pointer++));
    for (Operand& operand : operands_) {
      if (operand.reorder && !operand.is_output) operand.reorder.execute(stream, operand.ours, operand.theirs);
    }
    primitive_.execute(stream, arguments_);
    for (Operand& operand : operands_) {
      if (operand.reorder && operand.is_output) operand.reorder.execute(stream, operand.theirs, operand.ours);
    }
    stream.wait();
  }

 private:
  struct Operand {
    memory ours, theirs;  // one and the same without a reorder
    dnnl::reorder reorder;
    bool is_output;
  };

  void add(int name, const memory::desc& ours, const memory::desc& theirs, bool is_output) {
    Operand operand{memory(ours, engine_, nullptr), {}, {}, is_output};
    operand.theirs = ours == theirs ? operand.ours : memory(theirs, engine_);
    if (ours != theirs) {
      operand.reorder =
          is_output ? dnnl::reorder(operand.theirs, operand.ours) : dnnl::reorder(operand.ours, operand.theirs);
    }
    arguments_.emplace(name, operand.theirs);
    operands_.push_back(std::move(operand));
  }

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::vector<Operand> operands_;
  std::unordered_map<int, memory> arguments_;
};

enum class Kind { forward, forward_bias, backward_input, backward_weight };

// A thread's engine, stream and plans.
class Context {
 public:
  Plan& plan(Kind kind, const ConvGeometry& geometry) {
    const auto key = std::pair(kind, geometry);
    if (auto found = plans_.find(key); found != plans_.end()) return found->second;
    // Geometries change with the batch: a stream of ever new ones must not grow without bound.
    if (plans_.size() >= 256) plans_.clear();
    return plans_.emplace(key, make(kind, geometry)).first->second;
  }
  dnnl::stream& stream() { return stream_; }

 private:
  Plan make(Kind kind, const ConvGeometry& geometry) const {
    const Sizes sizes(geometry);
    switch (kind) {
      case Kind::forward:
        return forward(sizes, false);
      case Kind::forward_bias:
        return forward(sizes, true);
      case Kind::backward_input:
        return backward_input(sizes);
      case Kind::backward_weight:
        break;
    }
    return backward_weight(sizes);
  }

  Plan forward(const Sizes& s, bool bias) const {
    const auto desc = make_forward(s, bias, engine_);
    Plan plan(engine_, dnnl::convolution_forward(desc));
    plan.input(DNNL_ARG_SRC, plain_desc(s.x, Tag::nchw), desc.src_desc());
    plan.input(DNNL_ARG_WEIGHTS, plain_desc(s.weight, s.weight_tag()), desc.weights_desc());
    plan.output(DNNL_ARG_DST, plain_desc(s.y, Tag::nchw), desc.dst_desc());
    if (bias) plan.input(DNNL_ARG_BIAS, plain_desc(s.bias, Tag::a), desc.bias_desc());
    return plan;
  }

  Plan backward_input(const Sizes& s) const {
    const auto desc = make_backward_input(s, engine_);
    Plan plan(engine_, dnnl::convolution_backward_data(desc));
    plan.input(DNNL_ARG_DIFF_DST, plain_desc(s.y, Tag::nchw), desc.diff_dst_desc());
    plan.input(DNNL_ARG_WEIGHTS, plain_desc(s.weight, s.weight_tag()), desc.weights_desc());
    plan.output(DNNL_ARG_DIFF_SRC, plain_desc(s.x, Tag::nchw), desc.diff_src_desc());
    return plan;
  }

  Plan backward_weight(const Sizes& s) const {
    const auto desc = make_backward_weight(s, engine_);
    Plan plan(engine_, dnnl::convolution_backward_weights(desc));
    plan.input(DNNL_ARG_SRC, plain_desc(s.x, Tag::nchw), desc.src_desc());
    plan.input(DNNL_ARG_DIFF_DST, plain_desc(s.y, Tag::nchw), desc.diff_dst_desc());
    plan.output(DNNL_ARG_DIFF_WEIGHTS, plain_desc(s.weight, s.weight_tag()), desc.diff_weights_desc());
    return plan;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::pair<Kind, ConvGeometry>, Plan> plans_;
};

// Runs act with this thread's context; oneDNN's own exceptions become ours.
template <class Act>
void with_context(const char* what, Act act) {
  thread_local Context context;
  try {
    act(context);
  } catch (const dnnl::error& error) {
    throw make_error(Errc::internal, "oneDNN: {}: {}", what, error.what());
  }
}

}  // namespace

void conv_forward(const ConvGeometry& geometry, const float* x, const float* weight, const float* bias, float* y) {
  with_context("convolution forward", [&](Context& context) {
    if (bias != nullptr) {
      context.plan(Kind::forward_bias, geometry).run(context.stream(), {x, weight, y, bias});
    } else {
      context.plan(Kind::forward, geometry).run(context.stream(), {x, weight, y});
    }
  });
}

void conv_backward_input(const ConvGeometry& geometry, const float* grad, const float* weight, float* x_grad) {
  with_context("convolution backward to the input", [&](Context& context) {
    context.plan(Kind::backward_input, geometry).run(context.stream(), {grad, weight, x_grad});
  });
}

void conv_backward_weight(const ConvGeometry& geometry, const float* x, const float* grad, float* weight_grad,
                          bool accumulate) {
  const std::int64_t count =
      geometry.out_channels * (geometry.in_channels / geometry.groups) * geometry.kernel_h * geometry.kernel_w;
  std::vector<float> fresh(accumulate ? static_cast<std::size_t>(count) : 0);
  float* out = accumulate ? fresh.data() : weight_grad;
  with_context("convolution backward to the weight", [&](Context& context) {
    context.plan(Kind::backward_weight, geometry).run(context.stream(), {x, grad, out});
  });
  if (accumulate) std::transform(fresh.begin(), fresh.end(), weight_grad, weight_grad, std::plus<>());
}

}  // namespace ddprun::onednn
