#include "simulator/matrix.h"

#include <bit>
#include <cstring>

namespace tilewright::simulator {
namespace {

// Explicit vectors: compilers do not find these loops by themselves. Four elements, because every x86-64 has
// that much.
typedef float Float4 __attribute__((vector_size(16)));
typedef uint32_t Bits4 __attribute__((vector_size(16)));
typedef uint16_t Half4 __attribute__((vector_size(8)));

Float4 floats_from_bf16(Bits4 bits) {
  return std::bit_cast<Float4>(bits << 16);
}

// Exponent and mantissa move to their places in fp32 and a product corrects the bias, for subnormals too;
// infinities and NaN get the largest exponent.
Float4 floats_from_fp16(Bits4 bits) {
  const Bits4 magnitude = bits & 0x7fff;
  const Float4 scaled = std::bit_cast<Float4>(magnitude << 13) * 0x1p112f;
  const Bits4 not_finite = std::bit_cast<Bits4>(magnitude >= 0x7c00) & 0x7f800000;
  return std::bit_cast<Float4>(std::bit_cast<Bits4>(scaled) | not_finite | (bits & 0x8000) << 16);
}

template <ElementType type>
Float4 load_four(const uint16_t* elements) {
  Half4 half;
  std::memcpy(&half, elements, sizeof half);
  const Bits4 bits = __builtin_convertvector(half, Bits4);
  return type == ElementType::fp16 ? floats_from_fp16(bits) : floats_from_bf16(bits);
}

Float4 widen_four(const uint16_t* elements, ElementType type) {
  return type == ElementType::fp16 ? load_four<ElementType::fp16>(elements)
                                   : load_four<ElementType::bf16>(elements);
}

Float4 load_floats(const float* from) {
  Float4 values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

void store_four(float* to, Float4 values) {
  std::memcpy(to, &values, sizeof values);
}

void transpose(Float4 (&rows)[4]) {
  const Float4 a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Float4 b = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Float4 c = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Float4 d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

template <ElementType type>
void multiply(const MatrixOperands* const lanes[32]) {
  // A register of 32 lanes, in lane order, is an 8x8 matrix in row-major order (A) or column-major order (B),
  // two elements a lane; a pair of accumulators is half of D in row-major order.
  alignas(16) uint16_t a_tiles[4][8][8], b_tiles[2][8][8];
  alignas(16) float d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const MatrixOperands& operands = *lanes[lane];
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) std::memcpy(&a_tiles[i][row][column], &operands.a[i], 4);
    for (int i = 0; i < 2; ++i) std::memcpy(&b_tiles[i][row][column], &operands.b[i], 4);
    for (int i = 0; i < 2; ++i) std::memcpy(&d[row + 8 * i][column], &operands.d[2 * i], 8);
  }
  alignas(16) float a[16][16], b[16][8];
  for (int tile = 0; tile < 4; ++tile) {
    for (int i = 0; i < 64; i += 4) {
      const Float4 values = load_four<type>(&a_tiles[tile][i / 8][i % 8]);
      std::memcpy(&a[i / 8 + tile % 2 * 8][i % 8 + tile / 2 * 8], &values, sizeof values);
    }
  }
  for (int tile = 0; tile < 2; ++tile) {
    for (int i = 0; i < 64; i += 4) {
      const Float4 values = load_four<type>(&b_tiles[tile][i / 8][i % 8]);
      for (int k = 0; k < 4; ++k) b[tile * 8 + i % 8 + k][i / 8] = values[k];
    }
  }
  Float4 b_rows[16][2];
  std::memcpy(b_rows, b, sizeof b);
  for (int m = 0; m < 16; ++m) {
    Float4 sums[2];
    std::memcpy(sums, d[m], sizeof sums);
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half) sums[half] += a[m][k] * b_rows[k][half];
    }
    std::memcpy(d[m], sums, sizeof sums);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) std::memcpy(&lanes[lane]->d[2 * i], &d[lane / 4 + 8 * i][lane % 4 * 2], 8);
  }
}

}  // namespace

float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

float float_from_fp16(uint16_t bits) {
  return floats_from_fp16(Bits4{bits})[0];
}

uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t fp16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more
  if (magnitude < 0x38800000) {
    // Subnormal: added to 0.5, the value's last bits fall where fp16's do, and the addition rounds them.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

void load_matrix_x4(const std::byte* const rows[32], bool transposed, unsigned* const registers[32]) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row) std::memcpy(elements[row], rows[matrix * 8 + row], 16);
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const unsigned low = transposed ? elements[column][row] : elements[row][column];
      const unsigned high = transposed ? elements[column + 1][row] : elements[row][column + 1];
      registers[lane][matrix] = low | high << 16;
    }
  }
}

void multiply_16x8x16(const MatrixOperands* const lanes[32], ElementType type) {
  if (type == ElementType::fp16) {
    multiply<ElementType::fp16>(lanes);
  } else {
    multiply<ElementType::bf16>(lanes);
  }
}

void RowProduct::load_a(const uint16_t elements[16][16], ElementType type) {
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; k += 4) store_four(&a_[m][k], widen_four(&elements[m][k], type));
  }
}

void RowProduct::load_b(const uint16_t elements[16][8], int column, bool rows_are_k, ElementType type) {
  if (rows_are_k) {
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 8; i += 4) store_four(&b_[k][column + i], widen_four(&elements[k][i], type));
    }
    return;
  }
  for (int half = 0; half < 2; ++half) {  // of k
    for (int i = 0; i < 8; i += 4) {      // of the columns
      for (int k = 0; k < 8; k += 4) {
        Float4 columns[4];
        for (int c = 0; c < 4; ++c) columns[c] = widen_four(&elements[half * 8 + i + c][k], type);
        transpose(columns);
        for (int r = 0; r < 4; ++r) store_four(&b_[half * 8 + k + r][column + i], columns[r]);
      }
    }
  }
}

void RowProduct::multiply(int n) {
  for (int m = 0; m < 16; m += 4) {
    for (int column = 0; column < n; column += 8) {
      Float4 sums[4][2];
      for (int i = 0; i < 4; ++i) {
        for (int half = 0; half < 2; ++half) sums[i][half] = load_floats(&d[m + i][column + 4 * half]);
      }
      for (int k = 0; k < 16; ++k) {
        const Float4 low = load_floats(&b_[k][column]), high = load_floats(&b_[k][column + 4]);
        for (int i = 0; i < 4; ++i) {
          sums[i][0] += a_[m + i][k] * low;
          sums[i][1] += a_[m + i][k] * high;
        }
      }
      for (int i = 0; i < 4; ++i) {
        for (int half = 0; half < 2; ++half) store_four(&d[m + i][column + 4 * half], sums[i][half]);
      }
    }
  }
}

}  // namespace tilewright::simulator
