#include "cli/tile_map_drawing.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::cli {
namespace {

/// The tiles of a rectangle, if all are alike, else mixed.
TileKind kind_of(const TileMap& map, int64_t row, int64_t column, int64_t size) {
  const TileKind first = map.at(row, column);
  for (int64_t r = row; r < std::min(row + size, map.rows); ++r)
    for (int64_t c = column; c < std::min(column + size, map.columns); ++c)
      if (map.at(r, c) != first) return TileKind::mixed;
  return first;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text)
    result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return result;
}

}  // namespace

std::string drawn_as_text(const TileMap& map, int64_t most) {
  const int64_t size = std::max<int64_t>(1, (std::max(map.rows, map.columns) + most - 1) / most);
  std::string text;
  for (int64_t row = 0; row < map.rows; row += size) {
    for (int64_t column = 0; column < map.columns; column += size)
      text += "./#"[static_cast<int>(kind_of(map, row, column, size))];
    text += "\n";
  }
  return text;
}

std::string drawn_as_svg(const TileMap& map, const std::string& title) {
  constexpr int cell = 8;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\">\n<title>{}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#f4f4f4\"/>\n",
      map.columns * cell, map.rows * cell, escaped(title));
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns;) {
      const TileKind kind = map.at(row, column);
      int64_t end = column;  // of tiles that are alike
      while (end < map.columns && map.at(row, end) == kind) ++end;
      if (kind != TileKind::empty)
        text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                            column * cell, row * cell, (end - column) * cell, cell,
                            kind == TileKind::full ? "#1f4e79" : "#9dc3e6");
      column = end;
    }
  return text + "</svg>\n";
}

}  // namespace tilewright::cli
