// Draws the tiles of a mask: as text, as a picture.
#pragma once

#include <string>

#include "codegen/tile_map.h"

namespace tilewright::cli {

/// A line for each tile of query rows, at most `most` of them: `.` empty, `/` mixed, `#` full. A character
/// stands for several tiles where there are more of them: `/` then, unless all are alike.
std::string drawn_as_text(const TileMap& map, int64_t most);

/// An SVG document: mixed tiles light, full ones dark.
std::string drawn_as_svg(const TileMap& map, const std::string& title);

}  // namespace tilewright::cli
