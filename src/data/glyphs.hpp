// The ten digits in several styles each, as pen strokes through a few points.
#pragma once

#include <span>

namespace lockstep {

/// A point in the glyph's box: x to the right, y down, both from -1 to 1.
struct GlyphPoint {
  float x = 0;
  float y = 0;
};

/// The pen follows a smooth curve through all points of a stroke. A corner is where two strokes meet.
using GlyphStroke = std::span<const GlyphPoint>;
using Glyph = std::span<const GlyphStroke>;

/// The glyphs of `digit`, 0 to 9, one per style.
[[nodiscard]] std::span<const Glyph> glyphs_of(int digit);

}  // namespace lockstep
