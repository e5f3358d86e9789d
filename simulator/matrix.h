// The warp's matrix instructions as arithmetic on the registers of 32 lanes: the PTX manual's tables in code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright::simulator {

enum class ElementType { fp16 = 0, bf16 = 1 };

float float_from_fp16(uint16_t bits);
float float_from_bf16(uint16_t bits);
/// Round to nearest even; too large gives infinity, NaN the canonical 0x7fff.
uint16_t fp16_from_float(float value);
uint16_t bf16_from_float(float value);

/// ldmatrix .m8n8.x4.b16: four 8x8 matrices of 16-bit elements, to four registers a lane. `rows[i]` is the
/// 16-byte row that lane i points at: row i % 8 of matrix i / 8. Register i of a lane holds, of matrix i, the
/// elements [lane / 4][lane % 4 * 2 + {0, 1}], or of its transpose.
void load_matrix_x4(const std::byte* const rows[32], bool transposed, unsigned* const registers[32]);

/// What one lane brings to a product: mma.sync .m16n8k16 .row.col, fp32 accumulation.
struct MatrixOperands {
  float* d;           // 4 values: in c, out d
  const unsigned* a;  // 4 registers, two elements each
  unsigned b[2];
};

/// D += A B for A 16x16, B 16x8, D 16x8. With row = lane / 4 and column = lane % 4 * 2 a lane holds
///   a[i]: A[row + i % 2 * 8][column + i / 2 * 8 + {0, 1}]
///   b[i]: B[column + i * 8 + {0, 1}][row]
///   d[i]: D[row + i / 2 * 8][column + i % 2]
/// Products are exact in fp32 and added one after the other, in the order of k.
void multiply_16x8x16(const MatrixOperands* const lanes[32], ElementType type);

/// The share of one warp in a warpgroup's product: D (16 x n) += A (16 x 16) B (16 x n), n a multiple of 8 up
/// to 256. The arithmetic is that of multiply_16x8x16.
struct RowProduct {
  static constexpr int most_columns = 256;
  alignas(32) float d[16][most_columns];

  void load_a(const uint16_t elements[16][16], ElementType type);
  /// Eight columns of B from `column` on: `elements` is [k][column] if `rows_are_k`, else columns of eight
  /// k's: k 0-7 of the eight columns, then k 8-15.
  void load_b(const uint16_t elements[16][8], int column, bool rows_are_k, ElementType type);
  void multiply(int n);

 private:
  alignas(32) float a_[16][16];
  alignas(32) float b_[16][most_columns];
};

}  // namespace tilewright::simulator
