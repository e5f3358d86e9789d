// .npy files: what NumPy writes is read, and nothing else is.
#include "cli/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "codegen/error.h"

namespace tilewright::cli {
namespace {

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {version, 0};
  size_t length = header.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(length >> 8 * i & 0xFF);
  return bytes + header + data;
}

template <typename Element>
std::string bytes_of(std::initializer_list<Element> values) {
  std::string bytes(values.size() * sizeof(Element), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

TEST(Npy, ReadsEveryElementType) {
  NpyArray half = parse_npy(npy("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }",
                                bytes_of<uint16_t>({0x3C00, 0xC000, 0x0001, 0x7BFF})),
                            "x.npy");
  EXPECT_EQ(half.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(half.values, (std::vector<double>{1, -2, 0x1p-24, 65504}));
  NpyArray single = parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }      \n",
                                  bytes_of<float>({1.5f, -0.25f, 1e30f})),
                              "x.npy");
  EXPECT_EQ(single.values, (std::vector<double>{1.5, -0.25, 1e30f}));
  NpyArray twice = parse_npy(
      npy("{\"shape\": (1, 1, 1, 1), 'fortran_order': False, 'descr': '<f8'}", bytes_of<double>({0.1}), 2),
      "x.npy");
  EXPECT_EQ(twice.values, (std::vector<double>{0.1}));
  const auto integers = [](const std::string& descr, const std::string& data) {
    return parse_npy(npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2,)}", data), "x")
        .values;
  };
  EXPECT_EQ(integers("<i4", bytes_of<int32_t>({-3, INT32_MAX})), (std::vector<double>{-3, INT32_MAX}));
  EXPECT_EQ(integers("<i8", bytes_of<int64_t>({-3, 1LL << 40})), (std::vector<double>{-3, 0x1p40}));
  EXPECT_EQ(integers("|b1", bytes_of<char>({1, 0})), (std::vector<double>{1, 0}));
}

TEST(Npy, ReadsScalarsAndEmptyArrays) {
  EXPECT_EQ(
      parse_npy(npy("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes_of<double>({2})), "x")
          .values,
      std::vector<double>{2});
  EXPECT_TRUE(
      parse_npy(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 0)}", ""), "x")
          .values.empty());
  EXPECT_TRUE(
      parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0,)}", ""), "x").values.empty());
}

struct Malformed {
  std::string bytes;
  const char* message;
};

TEST(Npy, RefusesEverythingElse) {
  const std::string one = bytes_of<float>({1});
  auto dict = [](const std::string& text) {
    return "{'descr': '<f4', 'fortran_order': False, " + text + "}";
  };
  const Malformed cases[] = {
      {"", "is not a .npy file"},
      {"\x93NUMPY", "is not a .npy file"},
      {"PK\x03\x04 a zip archive", "is not a .npy file"},
      {npy("", one, 9), "has .npy format 9.0"},
      {std::string("\x93NUMPY\x01\x00\xFF\xFF{}", 12), "ends within its header"},
      {std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF{}", 14), "ends within its header"},
      {npy("", one), "no '{' where its header needs one"},
      {npy("{'descr': '<f4'", one), "no '}' where its header needs one"},
      {npy("{'descr': '<f4}", one), "no text where its header needs one"},
      {npy("{}", one), "a header without descr, fortran_order and shape"},
      {npy(dict("'shape': (1,)") + "more", one), "text after the dict"},
      {npy(dict("'shape': (1,), 'shape': (1,)"), one), "an unexpected or repeated key"},
      {npy(dict("'shape': (1,), 'extra': 1"), one), "an unexpected or repeated key"},
      {npy(dict("'shape': [1]"), one), "no '(' where its header needs one"},
      {npy(dict("'shape': (-1,)"), one), "a dimension in its header that is no valid number"},
      {npy(dict("'shape': (99999999999999999999,)"), one),
       "a dimension in its header that is no valid number"},
      {npy(dict("'shape': (1.5,)"), one), "no ')' where its header needs one"},
      {npy(dict("'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)"), one), "more than 8 dimensions"},
      {npy(dict("'shape': (2,)"), one), "has 4 bytes of data; its shape [2] of '<f4' takes 8"},
      {npy(dict("'shape': ()"), one + one), "has 8 bytes of data; its shape [] of '<f4' takes 4"},
      {npy(dict("'shape': (4611686018427387904, 4)"), one), "takes more than any file holds"},
      {npy(dict("'shape': (4294967296, 4294967296)"), ""), "takes more than any file holds"},
      {npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", one), "holds elements '>f4'"},
      {npy("{'descr': '<u4', 'fortran_order': False, 'shape': (1,)}", one), "holds elements '<u4'"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", one), "no True or False"},
      {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", one), "is in Fortran order"},
  };
  for (const Malformed& malformed : cases) {
    try {
      parse_npy(malformed.bytes, "x.npy");
      ADD_FAILURE() << malformed.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(malformed.message), std::string::npos) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("x.npy "));
    }
  }
}

TEST(Npy, DamagedFilesGiveErrorsAndNothingWorse) {
  const std::string good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
                               bytes_of<float>({1, 2, 3, 4, 5, 6}));
  std::mt19937 generator(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned edits = 1 + generator() % 4; edits > 0; --edits) {
      bytes[generator() % bytes.size()] = static_cast<char>(generator());
    }
    if (generator() % 4 == 0) bytes.resize(generator() % bytes.size());
    try {
      NpyArray array = parse_npy(bytes, "x.npy");
      size_t count = 1;
      for (int64_t size : array.shape) count *= static_cast<size_t>(size);
      EXPECT_EQ(array.values.size(), count);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

TEST(Npy, WritesWhatItReads) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("tilewright-" + std::to_string(getpid()) + ".npy");
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {4}, {2, 3}, {1, 2, 3, 4}, {5, 0, 2}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    size_t count = 1;
    for (int64_t size : shape) count *= static_cast<size_t>(size);
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = 0.5 * static_cast<double>(i) - 3;
    if (count > 1) values[1] = -INFINITY;
    write_npy(file, shape, values);
    EXPECT_EQ(std::filesystem::file_size(file) % 64, count * sizeof(float) % 64);
    NpyArray array = read_npy(file);
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.values, values);
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace tilewright::cli
