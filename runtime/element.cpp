#include <bit>
#include <cmath>
#include <cstring>

#include "codegen/error.h"
#include "runtime/reference.h"

namespace tilewright {
namespace {

/// Rounds to `fraction_bits` bits after the leading one, to nearest even, with subnormals below
/// 2^minimum_exponent and infinity from 2^(maximum_exponent + 1) on. One rounding, straight from fp64.
double round_to(double value, int fraction_bits, int minimum_exponent, int maximum_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = std::max(std::ilogb(value), minimum_exponent);
  double unit = std::ldexp(1.0, exponent - fraction_bits);
  double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) >= std::ldexp(1.0, maximum_exponent + 1)) return std::copysign(INFINITY, value);
  return rounded;
}

uint16_t fp16_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = std::abs(round_to(value, 10, -14, 15));
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(magnitude * 0x1p24);
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent) - 1024);
  return sign | static_cast<uint16_t>((exponent + 15) << 10) | fraction;
}

double fp16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude;
  if (exponent == 31)
    magnitude = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t bf16_bits(double value) {
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(round_to(value, 7, -126, 127))) >>
                               16);
}

double bf16_value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

[[noreturn]] void refuse(DataType type) {
  throw Error(ErrorKind::usage, "no host arithmetic for " + std::string(name_of(type)));
}

}  // namespace

double load_element(const void* data, DataType type, int64_t index) {
  uint16_t half;
  float single;
  switch (type) {
    case DataType::fp16:
      std::memcpy(&half, static_cast<const char*>(data) + 2 * index, 2);
      return fp16_value(half);
    case DataType::bf16:
      std::memcpy(&half, static_cast<const char*>(data) + 2 * index, 2);
      return bf16_value(half);
    case DataType::fp32:
      std::memcpy(&single, static_cast<const char*>(data) + 4 * index, 4);
      return single;
    case DataType::int32: {
      int32_t integer;
      std::memcpy(&integer, static_cast<const char*>(data) + 4 * index, 4);
      return integer;
    }
    case DataType::boolean:
      return static_cast<const unsigned char*>(data)[index] != 0;
    default:
      refuse(type);
  }
}

void store_element(void* data, DataType type, int64_t index, double value) {
  uint16_t half;
  auto single = static_cast<float>(value);
  switch (type) {
    case DataType::fp16:
      half = fp16_bits(value);
      std::memcpy(static_cast<char*>(data) + 2 * index, &half, 2);
      return;
    case DataType::bf16:
      half = bf16_bits(value);
      std::memcpy(static_cast<char*>(data) + 2 * index, &half, 2);
      return;
    case DataType::fp32:
      std::memcpy(static_cast<char*>(data) + 4 * index, &single, 4);
      return;
    case DataType::int32: {
      const auto integer = static_cast<int32_t>(value);
      std::memcpy(static_cast<char*>(data) + 4 * index, &integer, 4);
      return;
    }
    case DataType::boolean:
      static_cast<unsigned char*>(data)[index] = value != 0;
      return;
    default:
      refuse(type);
  }
}

}  // namespace tilewright
