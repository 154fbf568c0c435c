#include "worker/capi/element_types.h"

#include <algorithm>
#include <array>

#include "common/error.h"

namespace ddprun::capi {
namespace {

enum class Kind { real, integer, uint64, boolean, complex };

struct ElementType {
  std::int32_t number;
  const char* name;
  Kind kind;
  DType dtype;              // the library's type that reduces its elements, or their parts
  std::int32_t reduced_as;  // the number of the type to which they are converted before
  bool native() const { return reduced_as == number && (kind == Kind::real || kind == Kind::integer); }
};

// The most frequent ones are first.
constexpr std::array types{
    ElementType{6, "Float", Kind::real, DType::float32, 6},
    ElementType{15, "BFloat16", Kind::real, DType::bfloat16, 15},
    ElementType{5, "Half", Kind::real, DType::float16, 5},
    ElementType{7, "Double", Kind::real, DType::float64, 7},
    ElementType{4, "Long", Kind::integer, DType::int64, 4},
    ElementType{3, "Int", Kind::integer, DType::int32, 3},
    ElementType{0, "Byte", Kind::integer, DType::uint8, 0},
    ElementType{1, "Char", Kind::integer, DType::int8, 1},
    ElementType{11, "Bool", Kind::boolean, DType::uint8, 11},
    ElementType{2, "Short", Kind::integer, DType::int32, 3},
    ElementType{27, "UInt16", Kind::integer, DType::int32, 3},
    ElementType{28, "UInt32", Kind::integer, DType::int64, 4},
    ElementType{29, "UInt64", Kind::uint64, DType::int64, 29},
    ElementType{8, "ComplexHalf", Kind::complex, DType::float16, 8},
    ElementType{9, "ComplexFloat", Kind::complex, DType::float32, 9},
    ElementType{10, "ComplexDouble", Kind::complex, DType::float64, 10},
    ElementType{23, "Float8_e5m2", Kind::real, DType::float32, 6},
    ElementType{24, "Float8_e4m3fn", Kind::real, DType::float32, 6},
    ElementType{25, "Float8_e5m2fnuz", Kind::real, DType::float32, 6},
    ElementType{26, "Float8_e4m3fnuz", Kind::real, DType::float32, 6},
    ElementType{44, "Float8_e8m0fnu", Kind::real, DType::float32, 6},
};

// Returns null for a type that has no name here.
const ElementType* find(std::int32_t number) {
  for (const auto& type : types)
    if (type.number == number) return &type;
  return nullptr;
}

DType dtype_of_size(std::int32_t bytes) {
  switch (bytes) {
    case 1:
      return DType::uint8;
    case 2:
      return DType::float16;
    case 4:
      return DType::int32;
    default:
      return DType::int64;
  }
}

// True and false are 1 and 0: a sum is "any", a product is "all".
ReduceOp op_of_booleans(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::bit_or:
      return ReduceOp::max;
    case ReduceOp::product:
    case ReduceOp::bit_and:
      return ReduceOp::min;
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      throw make_error(Errc::usage, "truth values have no average and no multiple");
    default:
      return op;
  }
}

Reduction reduction_of(const ddprun_reduction& from) {
  if (from.op < DDPRUN_SUM || from.op > DDPRUN_PREMULTIPLIED_SUM) throw make_error(Errc::usage, "no such reduction");
  Reduction reduction(static_cast<ReduceOp>(from.op));
  reduction.factor = from.factor;
  return reduction;
}

}  // namespace

std::string name_of_type(std::int32_t type) {
  const auto* const found = find(type);
  return found ? found->name : "type " + std::to_string(type);
}

std::int32_t reduced_as(std::int32_t type) {
  const auto* const found = find(type);
  return found ? found->reduced_as : type;
}

Units moved_units(std::int32_t type, std::int32_t element_bytes) {
  const auto* const found = find(type);
  if (found && found->native()) return {found->dtype, 1};
  return {dtype_of_size(element_bytes), static_cast<std::size_t>(std::max(1, element_bytes / 8))};
}

Encoding encoding_of(std::int32_t number, const ddprun_reduction& given) {
  Encoding encoding{{DType::float32, 1}, reduction_of(given)};
  const auto* const type = find(number);
  if (!type) throw make_error(Errc::unsupported, "a reduction of {} is not supported", name_of_type(number));
  encoding.units.dtype = type->dtype;
  auto& op = encoding.reduction.op;
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  switch (type->kind) {
    case Kind::real:
      break;
    case Kind::integer:
      encoding.divides = op == ReduceOp::average;
      if (encoding.divides) op = ReduceOp::sum;
      break;
    case Kind::uint64:
      if (op == ReduceOp::average) throw make_error(Errc::usage, "the average of uint64 is not supported");
      encoding.flips_highest_bit = ordered;
      break;
    case Kind::boolean:
      op = op_of_booleans(op);
      break;
    case Kind::complex:
      if (ordered) throw make_error(Errc::usage, "complex numbers have no minimum and no maximum");
      if (op == ReduceOp::product) throw make_error(Errc::unsupported, "products of complex numbers are not supported");
      encoding.units.count = 2;
      break;
  }
  return encoding;
}

}  // namespace ddprun::capi
