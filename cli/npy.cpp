#include "cli/npy.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "codegen/error.h"
#include "runtime/reference.h"

namespace tilewright::cli {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view magic = "\x93NUMPY";
constexpr size_t max_rank = 8;

/// Reads the header: a Python dict literal with exactly the keys descr, fortran_order and shape.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

  void read() {
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      std::string key = read_string();
      expect(':');
      if (key == "descr" && !std::exchange(has_descr, true)) {
        descr = read_string();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        fortran_order = read_flag();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        read_shape();
      } else {
        fail("an unexpected or repeated key in its header");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!text_.empty()) fail("text after the dict in its header");
    if (!has_descr || !has_order || !has_shape) fail("a header without descr, fortran_order and shape");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorKind::usage, fmt::format("{} has {}; expected a .npy file of NumPy", name_, what));
  }
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_space();
    bool found = text_.starts_with(c);
    if (found) text_.remove_prefix(1);
    return found;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("no '{}' where its header needs one", c));
  }
  std::string read_string() {
    skip_space();
    char quote = text_.empty() ? '\0' : text_[0];
    size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : text_.npos;
    if (end == text_.npos) fail("no text where its header needs one");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool read_flag() {
    skip_space();
    for (bool value : {true, false}) {
      std::string_view word = value ? "True" : "False";
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    }
    fail("no True or False where its header needs one");
  }
  void read_shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t size = 0;
      auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) fail("a dimension in its header that is no valid number");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      shape.push_back(size);
      if (shape.size() > max_rank) fail(fmt::format("more than {} dimensions", max_rank));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  std::string_view name_;
};

struct Element {
  std::string_view descr;
  size_t bytes;
  double (*at)(const char* data, size_t index);
};

template <typename Number>
double number_at(const char* data, size_t index) {
  Number number;
  std::memcpy(&number, data + index * sizeof number, sizeof number);
  return static_cast<double>(number);
}

double half_at(const char* data, size_t index) {
  return load_element(data, DataType::fp16, static_cast<int64_t>(index));
}

constexpr Element elements[] = {{"<f2", 2, half_at},
                                {"<f4", 4, number_at<float>},
                                {"<f8", 8, number_at<double>},
                                {"<i4", 4, number_at<int32_t>},
                                {"<i8", 8, number_at<int64_t>},
                                {"|b1", 1, number_at<unsigned char>}};

/// Bytes of all elements; nothing if they pass the size of any file.
std::optional<size_t> data_bytes(const std::vector<int64_t>& shape, size_t element) {
  size_t bytes = element;
  for (int64_t size : shape) {
    if (size == 0) return 0;
  }
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

NpyArray parse_npy(std::string_view bytes, std::string_view name) {
  auto fail = [&](const std::string& message) {
    throw Error(ErrorKind::usage, fmt::format("{} {}", name, message));
  };
  auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  if (!bytes.starts_with(magic) || bytes.size() < 12) fail("is not a .npy file");
  bool version1 = byte(6) == 1;
  if (!version1 && byte(6) != 2 && byte(6) != 3) {
    fail(fmt::format("has .npy format {}.{}; expected 1, 2 or 3", byte(6), byte(7)));
  }
  size_t start = version1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (!version1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - start) fail("ends within its header");
  HeaderReader header(bytes.substr(start, length), name);
  header.read();

  const Element* element = nullptr;
  for (const Element& known : elements) {
    if (header.descr == known.descr) element = &known;
  }
  if (!element) {
    fail(fmt::format(
        "holds elements '{}'; expected little-endian float16, float32, float64, int32, int64 or bool",
        header.descr));
  }
  if (header.fortran_order && header.shape.size() > 1) {
    fail("is in Fortran order; expected C order (numpy.ascontiguousarray)");
  }
  std::optional<size_t> needed = data_bytes(header.shape, element->bytes);
  size_t present = bytes.size() - start - length;
  if (!needed || *needed != present) {
    fail(fmt::format("has {} bytes of data; its shape {} of '{}' takes {}", present, shape_text(header.shape),
                     header.descr, needed ? fmt::format("{}", *needed) : "more than any file holds"));
  }
  NpyArray array;
  array.shape = std::move(header.shape);
  const std::string data(bytes.substr(start + length));  // aligned, as reads of fp16 need it
  array.values.resize(present / element->bytes);
  for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = element->at(data.data(), i);
  return array;
}

NpyArray read_npy(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream bytes;
  std::error_code error;
  bool readable = std::filesystem::is_regular_file(file, error) && stream && bytes << stream.rdbuf();
  if (!readable) throw Error(ErrorKind::environment, file.string() + " cannot be read; expected a .npy file");
  return parse_npy(bytes.str(), file.string());
}

void write_npy(const std::filesystem::path& file, std::span<const int64_t> shape,
               std::span<const double> values) {
  std::string dimensions;
  for (int64_t size : shape) dimensions += fmt::format("{}, ", size);
  if (shape.size() > 1) dimensions.resize(dimensions.size() - 2);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dimensions);
  // The data starts at a multiple of 64 bytes, after a line end.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes(magic);
  bytes += {1, 0, static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  bytes += header;
  for (double value : values) {
    float narrow = static_cast<float>(value);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream) throw Error(ErrorKind::environment, file.string() + " cannot be written");
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace tilewright::cli
