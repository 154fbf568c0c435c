#include <dnnl.hpp>

#include "common/error.h"
#include "worker/tensor/bounded_cache.h"
#include "worker/tensor/onednn/int8.h"
#include "worker/tensor/onednn/threads.h"

namespace ddprun::onednn {
namespace {

using dnnl::memory;
using kernels::ConvGeometry;
using Tag = memory::format_tag;
using Type = memory::data_type;

memory::dims weight_sizes(const ConvGeometry& g) {
  if (g.groups == 1) return {g.out_channels, g.in_channels, g.kernel_h, g.kernel_w};
  return {g.groups, g.out_channels / g.groups, g.in_channels / g.groups, g.kernel_h, g.kernel_w};
}

memory::desc weight_desc(const ConvGeometry& g) {
  return {weight_sizes(g), Type::s8, g.groups == 1 ? Tag::oihw : Tag::goihw};
}

dnnl::convolution_forward::primitive_desc make_convolution(const ConvGeometry& g, const dnnl::engine& engine) {
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::desc x({g.batch, g.in_channels, g.height, g.width}, Type::u8, Tag::nhwc);
  const memory::desc weight(weight_sizes(g), Type::s8, Tag::any);
  const memory::desc y({g.batch, g.out_channels, g.out_h, g.out_w}, Type::s32, Tag::nhwc);
  const memory::dims stride{g.stride, g.stride}, dilation{g.dilation - 1, g.dilation - 1}, none{0, 0};
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, algorithm, x, weight, memory::desc(), y, stride, dilation, none, none};
#else
  return {{kind, algorithm, x, weight, y, stride, dilation, none, none}, engine};
#endif
}

// A primitive with its operands.
class Int8ConvPrimitive {
 public:
  Int8ConvPrimitive(const ConvGeometry& geometry, const dnnl::engine& engine)
      : Int8ConvPrimitive(geometry, make_convolution(geometry, engine), engine) {}

  void run(dnnl::stream& stream, const std::uint8_t* x, const std::int8_t* weight, std::int32_t* y) {
    x_.set_data_handle(const_cast<std::uint8_t*>(x));
    weight_.set_data_handle(const_cast<std::int8_t*>(weight));
    y_.set_data_handle(y);
    pack_.execute(stream, weight_, packed_);
    convolution_.execute(stream, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, packed_}, {DNNL_ARG_DST, y_}});
    stream.wait();
  }

 private:
  Int8ConvPrimitive(const ConvGeometry& geometry, const dnnl::convolution_forward::primitive_desc& desc,
                    const dnnl::engine& engine)
      : convolution_(desc),
        x_(desc.src_desc(), engine, nullptr),
        weight_(weight_desc(geometry), engine, nullptr),
        packed_(desc.weights_desc(), engine),
        y_(desc.dst_desc(), engine, nullptr),
        pack_(weight_, packed_) {}

  dnnl::convolution_forward convolution_;
  memory x_, weight_, packed_, y_;
  dnnl::reorder pack_;
};

// A thread's engine, stream and plans, for one number of oneDNN's threads.
struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  BoundedCache<ConvGeometry, Int8ConvPrimitive> plans;
};

}  // namespace

void convolve(const ConvGeometry& geometry, const std::uint8_t* x, const std::int8_t* weight, std::int32_t* y) {
  try {
    auto& context = context_for_threads<Context>();
    context.plans.get(geometry, [&] { return Int8ConvPrimitive(geometry, context.engine); })
        .run(context.stream, x, weight, y);
  } catch (const dnnl::error& error) {
    throw make_error(Errc::internal, "oneDNN: int8 convolution of {} channels by {} of {} x {}: {}",
                     geometry.in_channels, geometry.out_channels, geometry.kernel_h, geometry.kernel_w, error.what());
  }
}

}  // namespace ddprun::onednn
