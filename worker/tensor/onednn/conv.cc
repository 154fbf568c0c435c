#include "worker/tensor/onednn/conv.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/tensor/bounded_cache.h"
#include "worker/tensor/onednn/matmul.h"
#include "worker/tensor/onednn/threads.h"
#include "worker/tensor/storage.h"
#include "worker/tensor/tensor.h"

// Convolution through oneDNN, which only this folder uses. Its 2.x describes an operation in two steps, 3.x in one:
// make_* below hold the difference.
namespace ddprun::onednn {
namespace {

using dnnl::memory;
using kernels::ConvGeometry;
using Tag = memory::format_tag;

memory::data_type type_of(DType dtype) {
  return dtype == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

Tag tag_of_images(std::int64_t block) {
  return block == 16 ? Tag::nChw16c : block == 8 ? Tag::nChw8c : Tag::nchw;
}

// The sizes of a convolution's operands and of its window, in oneDNN's form.
struct Sizes {
  Sizes(const ConvGeometry& g, DType dtype)
      : type(type_of(dtype)),
        x{g.batch, g.in_channels, g.height, g.width},
        weight(g.groups == 1 ? memory::dims{g.out_channels, g.in_channels, g.kernel_h, g.kernel_w}
                             : memory::dims{g.groups, g.out_channels / g.groups, g.in_channels / g.groups, g.kernel_h,
                                            g.kernel_w}),
        bias{g.out_channels},
        y{g.batch, g.out_channels, g.out_h, g.out_w},
        stride{g.stride, g.stride},
        dilation{g.dilation - 1, g.dilation - 1},  // oneDNN counts the gaps
        before{g.padding, g.padding},
        // The part that the last window does not cover is negative padding at the far side.
        after{(g.out_h - 1) * g.stride + (g.kernel_h - 1) * g.dilation + 1 - g.height - g.padding,
              (g.out_w - 1) * g.stride + (g.kernel_w - 1) * g.dilation + 1 - g.width - g.padding},
        winograd(g.winograd) {}
  // Describes operands in the layout that oneDNN chooses.
  memory::desc any(const memory::dims& sizes) const { return {sizes, type, Tag::any}; }
  // Describes operands in our layout. Gradients of weights are float32, whatever the images are.
  memory::desc image(const memory::dims& sizes, std::int64_t block) const {
    return {sizes, type, tag_of_images(block)};
  }
  memory::desc weights() const { return {weight, type, weight_tag()}; }
  memory::desc weight_gradient() const { return {weight, memory::data_type::f32, weight_tag()}; }
  memory::desc any_weight_gradient() const { return {weight, memory::data_type::f32, Tag::any}; }
  memory::desc biases() const { return {bias, type, Tag::a}; }
  Tag weight_tag() const { return weight.size() == 4 ? Tag::oihw : Tag::goihw; }
  // Returns by how many channels oneDNN blocked an image; 0 if in another way, or not at all.
  std::int64_t block_of(const memory::desc& desc, const memory::dims& sizes) const {
    for (const std::int64_t block : {8, 16})
      if (sizes[1] % block == 0 && desc == image(sizes, block)) return block;
    return 0;
  }

  // The layout that a convolution prefers for its images. oneDNN's own choice, blocks of 8 or 16 channels, is the
  // fastest where they fill the blocks; it pads the 10 and 20 channels of a small net, whose backward pass is 1.6 times
  // faster with channels last (conv2 of the CNN, batch 64, one thread of a Sapphire Rapids, reorders counted: 0.95
  // against 1.50 ms; forward takes 0.45 ms either way). A single channel is a case of its own that only oneDNN's choice
  // serves well: 0.24 against 0.37 ms forward.
  memory::desc preferred_image(const memory::dims& sizes) const {
    return {sizes, type, fills_blocks() || x[1] == 1 || skips_pixels() ? Tag::any : Tag::nhwc};
  }
  bool fills_blocks() const { return y[1] % 16 == 0 && (x[1] % 16 == 0 || x[1] <= 4); }
  // Returns whether it is a convolution of 1x1 with a stride. With channels last, oneDNN 2.6 writes beyond its own
  // memory where channels do not fill blocks.
  bool skips_pixels() const { return weight.end()[-1] == 1 && weight.end()[-2] == 1 && stride[0] > 1; }
  // Chooses Winograd's, where oneDNN has it and finds it faster.
  dnnl::algorithm algorithm() const {
    return winograd ? dnnl::algorithm::convolution_auto : dnnl::algorithm::convolution_direct;
  }
  memory::data_type type;
  memory::dims x, weight, bias, y, stride, dilation, before, after;
  bool winograd;
};

dnnl::convolution_forward::primitive_desc make_forward(const Sizes& s, bool bias, const dnnl::engine& engine) {
  const auto kind = dnnl::prop_kind::forward_training;
  const memory::desc bias_desc = bias ? s.biases() : memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  return {engine,
          kind,
          s.algorithm(),
          s.preferred_image(s.x),
          s.any(s.weight),
          bias_desc,
          s.preferred_image(s.y),
          s.stride,
          s.dilation,
          s.before,
          s.after};
#else
  return {{kind, s.algorithm(), s.preferred_image(s.x), s.any(s.weight), bias_desc, s.preferred_image(s.y), s.stride,
           s.dilation, s.before, s.after},
          engine};
#endif
}

dnnl::convolution_backward_data::primitive_desc make_backward_input(const Sizes& s, const dnnl::engine& engine) {
  const auto hint = make_forward(s, false, engine);
#if DNNL_VERSION_MAJOR >= 3
  return {engine,
          s.algorithm(),
          s.preferred_image(s.x),
          s.any(s.weight),
          s.preferred_image(s.y),
          s.stride,
          s.dilation,
          s.before,
          s.after,
          hint};
#else
  return {{s.algorithm(), s.preferred_image(s.x), s.any(s.weight), s.preferred_image(s.y), s.stride, s.dilation,
           s.before, s.after},
          engine,
          hint};
#endif
}

dnnl::convolution_backward_weights::primitive_desc make_backward_weight(const Sizes& s, const dnnl::engine& engine) {
  const auto hint = make_forward(s, false, engine);
#if DNNL_VERSION_MAJOR >= 3
  return {engine,
          s.algorithm(),
          s.preferred_image(s.x),
          s.any_weight_gradient(),
          s.preferred_image(s.y),
          s.stride,
          s.dilation,
          s.before,
          s.after,
          hint};
#else
  return {{s.algorithm(), s.preferred_image(s.x), s.any_weight_gradient(), s.preferred_image(s.y), s.stride, s.dilation,
           s.before, s.after},
          engine,
          hint};
#endif
}

// A primitive with its operands: ours are row-major, a reorder converts where the primitive chose a blocked layout. The
// blocked copies take memory for the time of a call, from the blocks that tensors have freed.
class BoundPrimitive {
 public:
  BoundPrimitive(const dnnl::engine& engine, const dnnl::primitive& primitive)
      : engine_(engine), primitive_(primitive) {}

  void input(int name, const memory::desc& ours, const memory::desc& theirs) { add(name, ours, theirs, false); }
  void output(int name, const memory::desc& ours, const memory::desc& theirs) { add(name, ours, theirs, true); }

  // Pointers in the order of the input() and output() calls.
  void run(dnnl::stream& stream, std::initializer_list<const void*> data) {
    auto pointer = data.begin();
    for (Operand& operand : operands_) operand.ours.set_data_handle(const_cast<void*>(*pointer++));
    const auto blocked = place_blocked();
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

  // Returns the memory that the blocked copies have from now on.
  std::vector<std::shared_ptr<Storage>> place_blocked() {
    std::vector<std::shared_ptr<Storage>> blocks;
    for (Operand& operand : operands_) {
      if (!operand.reorder) continue;
      blocks.push_back(Storage::allocate_scratch(operand.theirs.get_desc().get_size()));
      operand.theirs.set_data_handle(blocks.back()->data());
    }
    return blocks;
  }

  void add(int name, const memory::desc& ours, const memory::desc& theirs, bool is_output) {
    Operand operand{memory(ours, engine_, nullptr), {}, {}, is_output};
    operand.theirs = ours == theirs ? operand.ours : memory(theirs, engine_, nullptr);
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

// A thread's engine, stream and plans, for one number of oneDNN's threads.
class Context {
 public:
  BoundPrimitive& plan(Kind kind, const ConvGeometry& geometry, DType dtype, ImageBlocks blocks) {
    return plans_.get({kind, geometry, dtype, blocks.x, blocks.y}, [&] {
      return make(kind, {geometry, dtype}, blocks);
    });
  }
  ImageBlocks preferred(const ConvGeometry& geometry, DType dtype) {
    return preferred_.get({geometry, dtype}, [&]() -> ImageBlocks {
      const Sizes sizes(geometry, dtype);
      const auto desc = make_forward(sizes, false, engine_);
      return {sizes.block_of(desc.src_desc(), sizes.x), sizes.block_of(desc.dst_desc(), sizes.y)};
    });
  }
  dnnl::stream& stream() { return stream_; }

 private:
  BoundPrimitive make(Kind kind, const Sizes& sizes, ImageBlocks blocks) const {
    switch (kind) {
      case Kind::forward:
        return forward(sizes, blocks, false);
      case Kind::forward_bias:
        return forward(sizes, blocks, true);
      case Kind::backward_input:
        return backward_input(sizes, blocks);
      case Kind::backward_weight:
        break;
    }
    return backward_weight(sizes, blocks);
  }

  BoundPrimitive forward(const Sizes& s, ImageBlocks blocks, bool bias) const {
    const auto desc = make_forward(s, bias, engine_);
    BoundPrimitive plan(engine_, dnnl::convolution_forward(desc));
    plan.input(DNNL_ARG_SRC, s.image(s.x, blocks.x), desc.src_desc());
    plan.input(DNNL_ARG_WEIGHTS, s.weights(), desc.weights_desc());
    plan.output(DNNL_ARG_DST, s.image(s.y, blocks.y), desc.dst_desc());
    if (bias) plan.input(DNNL_ARG_BIAS, s.biases(), desc.bias_desc());
    return plan;
  }

  BoundPrimitive backward_input(const Sizes& s, ImageBlocks blocks) const {
    const auto desc = make_backward_input(s, engine_);
    BoundPrimitive plan(engine_, dnnl::convolution_backward_data(desc));
    plan.input(DNNL_ARG_DIFF_DST, s.image(s.y, blocks.y), desc.diff_dst_desc());
    plan.input(DNNL_ARG_WEIGHTS, s.weights(), desc.weights_desc());
    plan.output(DNNL_ARG_DIFF_SRC, s.image(s.x, blocks.x), desc.diff_src_desc());
    return plan;
  }

  BoundPrimitive backward_weight(const Sizes& s, ImageBlocks blocks) const {
    const auto desc = make_backward_weight(s, engine_);
    BoundPrimitive plan(engine_, dnnl::convolution_backward_weights(desc));
    plan.input(DNNL_ARG_SRC, s.image(s.x, blocks.x), desc.src_desc());
    plan.input(DNNL_ARG_DIFF_DST, s.image(s.y, blocks.y), desc.diff_dst_desc());
    plan.output(DNNL_ARG_DIFF_WEIGHTS, s.weight_gradient(), desc.diff_weights_desc());
    return plan;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  BoundedCache<std::tuple<Kind, ConvGeometry, DType, std::int64_t, std::int64_t>, BoundPrimitive> plans_;
  BoundedCache<std::tuple<ConvGeometry, DType>, ImageBlocks> preferred_;
};

// Runs act with this thread's context; turns oneDNN's own exceptions into ours.
template <class Act>
auto with_context(const char* what, Act act) {
  try {
    return act(context_for_threads<Context>());
  } catch (const dnnl::error& error) {
    throw make_error(Errc::internal, "oneDNN: {}: {}", what, error.what());
  }
}

}  // namespace

bool convolves_fast(const ConvGeometry& geometry, DType dtype) {
  return geometry.groups == 1 && Sizes(geometry, dtype).fills_blocks() && multiplies_fast(dtype);
}

ImageBlocks preferred_blocks(const ConvGeometry& geometry, DType dtype) {
  return with_context("choice of a convolution's layout",
                      [&](Context& context) { return context.preferred(geometry, dtype); });
}

void conv_forward(const ConvGeometry& geometry, DType dtype, Image<const void> x, const void* weight, const void* bias,
                  Image<void> y) {
  with_context("convolution forward", [&](Context& context) {
    if (bias != nullptr) {
      context.plan(Kind::forward_bias, geometry, dtype, {x.block, y.block})
          .run(context.stream(), {x.data, weight, y.data, bias});
    } else {
      context.plan(Kind::forward, geometry, dtype, {x.block, y.block}).run(context.stream(), {x.data, weight, y.data});
    }
  });
}

void conv_backward_input(const ConvGeometry& geometry, DType dtype, Image<const void> grad, const void* weight,
                         Image<void> x_grad) {
  with_context("convolution backward to the input", [&](Context& context) {
    context.plan(Kind::backward_input, geometry, dtype, {x_grad.block, grad.block})
        .run(context.stream(), {grad.data, weight, x_grad.data});
  });
}

namespace {

// Where sums are divided, a convolution's gradient of the weight is the sum of those of so many parts of the
// batch. Only the sizes decide, so that the order of additions does not depend on the number of threads. A part more
// costs a pass over the weight, of some 0.3 ns for each element, while each position of an image costs an element 0.009
// ns (a Zen 4): at this number the passes take below 2 % of the time.
std::int64_t parts_of_batch(const ConvGeometry& g) {
  constexpr std::int64_t positions_of_a_part = 2048, most = 8;
  if (!divides_sums()) return 1;
  return std::min({g.batch, most, 1 + g.batch * g.out_h * g.out_w / positions_of_a_part});
}

// The bound is in multiply-adds. Beyond it, and with so few positions that the batch is not divided, oneDNN divides the
// weight among its threads; of smaller ones it would divide the sums.
constexpr std::int64_t work_of_one_thread = 64'000'000;

std::size_t bytes_of_images(std::int64_t images, std::int64_t channels, std::int64_t height, std::int64_t width,
                            DType dtype) {
  return static_cast<std::size_t>(images * channels * height * width) * size_of(dtype);
}

void backward_weight(const ConvGeometry& geometry, DType dtype, Image<const void> x, Image<const void> grad,
                     float* out) {
  with_context("convolution backward to the weight", [&](Context& context) {
    context.plan(Kind::backward_weight, geometry, dtype, {x.block, grad.block})
        .run(context.stream(), {x.data, grad.data, out});
  });
}

// Computes the part of a batch that begins with image `first`.
void backward_weight_of_part(const ConvGeometry& part, std::int64_t first, DType dtype, Image<const void> x,
                             Image<const void> grad, float* out) {
  const auto* const images = static_cast<const std::byte*>(x.data);
  const auto* const gradients = static_cast<const std::byte*>(grad.data);
  backward_weight(
      part, dtype, {images + bytes_of_images(first, part.in_channels, part.height, part.width, dtype), x.block},
      {gradients + bytes_of_images(first, part.out_channels, part.out_h, part.out_w, dtype), grad.block}, out);
}

void add_to(float* sum, const float* values, std::int64_t count) {
  std::transform(values, values + count, sum, sum, std::plus<>());
}

}  // namespace

void conv_backward_weight(const ConvGeometry& geometry, DType dtype, Image<const void> x, Image<const void> grad,
                          float* weight_grad, bool accumulate) {
  const std::int64_t count =
      geometry.out_channels * (geometry.in_channels / geometry.groups) * geometry.kernel_h * geometry.kernel_w;
  const std::int64_t images = divide_up(geometry.batch, parts_of_batch(geometry));
  const std::int64_t parts = divide_up(geometry.batch, images);
  const std::int64_t kept = accumulate ? 1 : 0;  // the first part's gradient goes elsewhere too
  const Tensor scratch = Tensor::empty({parts - 1 + kept, count});
  float* const others = const_cast<Tensor&>(scratch).data<float>();
  const auto place = [&](std::int64_t part) {
    return part == 0 && !accumulate ? weight_grad : others + (part - 1 + kept) * count;
  };
  if (parts == 1 && count * geometry.batch * geometry.out_h * geometry.out_w > work_of_one_thread) {
    backward_weight(geometry, dtype, x, grad, place(0));
  } else {
    run_parts(static_cast<int>(parts), [&](int part) {
      ConvGeometry own = geometry;
      own.batch = std::min(images, geometry.batch - part * images);
      backward_weight_of_part(own, part * images, dtype, x, grad, place(part));
    });
  }
  for (std::int64_t part = 1 - kept; part < parts; ++part) add_to(weight_grad, place(part), count);
}

}  // namespace ddprun::onednn
