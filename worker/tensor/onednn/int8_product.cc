#include <algorithm>
#include <utility>

#include <dnnl.hpp>

#include "common/error.h"
#include "worker/tensor/bounded_cache.h"
#include "worker/tensor/onednn/int8.h"
#include "worker/tensor/onednn/threads.h"

namespace ddprun::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

// Multiplies u8 by s8: every x86 processor does it fast; s8 times s8 ran 2 to 10 times slower on AVX2.
dnnl::matmul::primitive_desc make_matmul(const Int8Product& p, const dnnl::engine& engine) {
  const memory::desc a({p.m, p.k}, Type::u8, Tag::ab), b({p.k, p.n}, Type::s8, Tag::ba),
      out({p.m, p.n}, Type::s32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, out};
#else
  return {{a, b, out}, engine};
#endif
}

// A primitive with its operands.
class Int8ProductPrimitive {
 public:
  Int8ProductPrimitive(const Int8Product& product, const dnnl::engine& engine)
      : Int8ProductPrimitive(make_matmul(product, engine), engine) {}

  void run(dnnl::stream& stream, const std::uint8_t* a, const std::int8_t* b, std::int32_t* out) {
    a_.set_data_handle(const_cast<std::uint8_t*>(a));
    b_.set_data_handle(const_cast<std::int8_t*>(b));
    out_.set_data_handle(out);
    matmul_.execute(stream, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, out_}});
    stream.wait();
  }

 private:
  Int8ProductPrimitive(const dnnl::matmul::primitive_desc& desc, const dnnl::engine& engine)
      : matmul_(desc),
        a_(desc.src_desc(), engine, nullptr),
        b_(desc.weights_desc(), engine, nullptr),
        out_(desc.dst_desc(), engine, nullptr) {}

  dnnl::matmul matmul_;
  memory a_, b_, out_;
};

// A thread's engine, stream and plans, for one number of oneDNN's threads.
class Context {
 public:
  Int8ProductPrimitive& plan(const Int8Product& product) {
    return plans_.get(product, [&] { return Int8ProductPrimitive(product, engine_); });
  }
  dnnl::stream& stream() { return stream_; }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  BoundedCache<Int8Product, Int8ProductPrimitive> plans_;
};

}  // namespace

void multiply(const Int8Product& product, const std::uint8_t* a, const std::int8_t* b, std::int32_t* out) {
  if (product.k == 0) std::fill_n(out, product.m * product.n, 0);
  if (product.m == 0 || product.n == 0 || product.k == 0) return;
  try {
    auto& context = context_for_threads<Context>();
    context.plan(product).run(context.stream(), a, b, out);
  } catch (const dnnl::error& error) {
    throw make_error(Errc::internal, "oneDNN: int8 product of {} x {} and {} x {}: {}", product.m, product.k, product.k,
                     product.n, error.what());
  }
}

}  // namespace ddprun::onednn
