// The matrix instructions against the fragment tables of the PTX manual, index for index.
#include "simulator/matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type": element i of a lane's fragment.
struct Index {
  int row, column;
};
Index a_index(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(i < 2 || (i >= 4 && i < 6)) ? group : group + 8, in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Index b_index(int lane, int i) {
  return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane >> 2};
}
Index c_index(int lane, int i) {
  return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

struct Product {
  float a[16][16] = {}, b[16][8] = {}, c[16][8] = {};
};

void multiply(Product& product, ElementType type) {
  const auto encode = [&](float value) -> unsigned {
    return type == ElementType::fp16 ? fp16_from_float(value) : bf16_from_float(value);
  };
  unsigned a[32][4] = {};
  float d[32][4];
  MatrixOperands operands[32];
  const MatrixOperands* lanes[32];
  for (int lane = 0; lane < 32; ++lane) {
    operands[lane] = {d[lane], a[lane], {0, 0}};
    lanes[lane] = &operands[lane];
    for (int i = 0; i < 8; ++i) {
      const Index at = a_index(lane, i);
      a[lane][i / 2] |= encode(product.a[at.row][at.column]) << i % 2 * 16;
    }
    for (int i = 0; i < 4; ++i) {
      const Index b = b_index(lane, i), c = c_index(lane, i);
      operands[lane].b[i / 2] |= encode(product.b[b.row][b.column]) << i % 2 * 16;
      d[lane][i] = product.c[c.row][c.column];
    }
  }
  multiply_16x8x16(lanes, type);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Index at = c_index(lane, i);
      product.c[at.row][at.column] = d[lane][i];
    }
  }
}

class MatrixProduct : public testing::TestWithParam<ElementType> {};

// A single 1 in A picks one row of B, whose elements are all different: each index is checked on its own.
TEST_P(MatrixProduct, EveryElementOfAMeetsItsRowOfB) {
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      Product product;
      product.a[m][k] = 1;
      for (int i = 0; i < 16; ++i) {
        for (int n = 0; n < 8; ++n) product.b[i][n] = static_cast<float>(i * 8 + n + 1);
      }
      multiply(product, GetParam());
      for (int row = 0; row < 16; ++row) {
        for (int n = 0; n < 8; ++n) {
          ASSERT_EQ(product.c[row][n], row == m ? product.b[k][n] : 0)
              << m << " " << k << " " << row << " " << n;
        }
      }
    }
  }
}

TEST_P(MatrixProduct, AddsToTheAccumulator) {
  Product product;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) product.a[i][j] = static_cast<float>((i * 5 + j * 3) % 11 - 5);
    for (int n = 0; n < 8; ++n) product.b[i][n] = static_cast<float>((i * 7 + n) % 13 - 6) / 4;
    for (int n = 0; n < 8; ++n) product.c[i][n] = static_cast<float>(i * 8 + n);
  }
  Product expected = product;
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < 16; ++k) expected.c[m][n] += expected.a[m][k] * expected.b[k][n];
    }
  }
  multiply(product, GetParam());
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) EXPECT_EQ(product.c[m][n], expected.c[m][n]) << m << " " << n;
  }
}

TEST_P(MatrixProduct, InfinityAndNaNPass) {
  Product product;
  product.a[3][5] = std::numeric_limits<float>::infinity();
  product.b[5][2] = 2;
  product.a[9][1] = std::numeric_limits<float>::quiet_NaN();
  multiply(product, GetParam());
  EXPECT_EQ(product.c[3][2], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(product.c[3][0]));  // infinity * 0
  EXPECT_TRUE(std::isnan(product.c[9][7]));
  EXPECT_EQ(product.c[0][0], 0);
}

INSTANTIATE_TEST_SUITE_P(Types, MatrixProduct, testing::Values(ElementType::fp16, ElementType::bf16),
                         [](const auto& type) { return type.param == ElementType::fp16 ? "fp16" : "bf16"; });

// PTX ISA, ldmatrix: lane i points at row i % 8 of matrix i / 8; register r of a lane holds of matrix r the
// elements 2 * (lane % 4) and the next of row lane / 4; with .trans rows and columns change places.
TEST(LoadMatrix, EveryElement) {
  for (const bool transposed : {false, true}) {
    uint16_t rows[32][8];
    const std::byte* pointers[32];
    unsigned registers[32][4];
    unsigned* destinations[32];
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 8; ++j) rows[i][j] = static_cast<uint16_t>(i * 8 + j);
      pointers[i] = reinterpret_cast<const std::byte*>(rows[i]);
      destinations[i] = registers[i];
    }
    load_matrix_x4(pointers, transposed, destinations);
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4, column = lane % 4 * 2 + half;
          const unsigned expected = transposed ? rows[r * 8 + column][row] : rows[r * 8 + row][column];
          EXPECT_EQ(registers[lane][r] >> 16 * half & 0xffff, expected) << lane << " " << r << " " << half;
        }
      }
    }
  }
}

// --- 16-bit formats

double decode(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  int exponent_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

class SixteenBits : public testing::TestWithParam<Format> {};

TEST_P(SixteenBits, EveryPatternWidensAndComesBack) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 65536; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const double expected = decode(pattern, format.exponent_bits);
    const float got = format.widen(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(decode(format.narrow(got), format.exponent_bits))) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(format.narrow(got), pattern) << bits;
    }
  }
}

TEST_P(SixteenBits, RoundsToNearestEven) {
  const Format& format = GetParam();
  const int infinity = ((1 << format.exponent_bits) - 1) << (15 - format.exponent_bits);
  for (int bits = 0; bits + 1 < infinity; ++bits) {
    const double low = decode(static_cast<uint16_t>(bits), format.exponent_bits);
    const double high = decode(static_cast<uint16_t>(bits + 1), format.exponent_bits);
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(format.narrow(middle), bits % 2 ? bits + 1 : bits) << bits;
    ASSERT_EQ(format.narrow(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(format.narrow(std::nextafter(middle, INFINITY)), bits + 1) << bits;
    ASSERT_EQ(format.narrow(-middle), 0x8000 | (bits % 2 ? bits + 1 : bits)) << bits;
  }
}

TEST_P(SixteenBits, TooLargeBecomesInfinity) {
  const Format& format = GetParam();
  EXPECT_EQ(format.widen(format.narrow(std::numeric_limits<float>::max())), INFINITY);
  EXPECT_EQ(format.widen(format.narrow(-INFINITY)), -INFINITY);
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Format{"fp16", 5, float_from_fp16, fp16_from_float},
                                         Format{"bf16", 8, float_from_bf16, bf16_from_float}),
                         [](const auto& format) { return format.param.name; });

// --- the same through the interface

TEST(MatrixPrimitives, WarpLoadsAndMultiplies) {
  // A = B' = identity-like patterns in shared memory: D = A B with A[m][k] = m == k, so that D is B.
  float result[32][4];
  const Report report = run_body([&](const SimulatorInterface& simulator) {
    const int lane = simulator.thread_index();
    // 16 rows of A, 32 bytes each, then 8 columns of B, 32 bytes each.
    if (lane < 24) {
      for (int half = 0; half < 2; ++half) {
        uint16_t row[8];
        for (int i = 0; i < 8; ++i) {
          const int k = half * 8 + i;
          row[i] = bf16_from_float(lane < 16 ? static_cast<float>(lane == k)
                                             : static_cast<float>(k * 8 + lane - 16));
        }
        simulator.shared_store(lane * 32 + half * 16, row, 16, 1);
      }
    }
    simulator.warp_barrier(~0u, 2);
    unsigned a[4], b[4];
    simulator.load_matrix_x4(a, (lane % 16) * 32 + lane / 16 * 16, 0, 3);
    simulator.load_matrix_x4(b, 512 + lane % 8 * 32 + lane / 8 % 2 * 16, 0, 4);
    float d[4] = {0, 0, 0, 0};
    simulator.matrix_multiply_16x8x16(d, a, b[0], b[1], 1, 5);
    std::memcpy(result[lane], d, sizeof d);
  });
  expect_ok(report);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Index at = c_index(lane, i);
      EXPECT_EQ(result[lane][i], static_cast<float>(at.row * 8 + at.column));
    }
  }
}

TEST(MatrixPrimitives, UnknownElementType) {
  const Report report = run_body([](const SimulatorInterface& simulator) {
    float d[4] = {};
    unsigned a[4] = {};
    simulator.matrix_multiply_16x8x16(d, a, 0, 0, 2, 7);
  });
  expect_fault(report, {"matrix_multiply_16x8x16 at line 7", "element type 2"});
}

TEST(MatrixPrimitives, PackTwo) {
  run_body([](const SimulatorInterface& simulator) {
    EXPECT_EQ(simulator.pack_two(1.0f, -2.0f, 1), 0xc0003f80u);
    EXPECT_EQ(simulator.pack_two(1.0f, -2.0f, 0), 0xc0003c00u);
  });
}

}  // namespace
}  // namespace tilewright::simulator
