// The ten digits as a hand draws them: strokes through a few points, in several styles each.
#pragma once

#include <span>

namespace lockstep {

/// A point of the glyph's box: x to the right, y down, the box from -1 to 1 both ways.
struct GlyphPoint {
  float x = 0;
  float y = 0;
};

/// The pen goes through all points on a smooth curve; a corner is where one stroke ends and another begins.
using GlyphStroke = std::span<const GlyphPoint>;
using Glyph = std::span<const GlyphStroke>;

/// The styles in which `digit` (0 to 9) is written.
[[nodiscard]] std::span<const Glyph> glyphs_of(int digit);

}  // namespace lockstep
