#pragma once

#include <span>
#include <vector>

// The shapes of the ten digits as pen strokes, in a box from (0, 0) top left to (1, 1) bottom right.
namespace ddprun::data {

struct Point {
  float x = 0;
  float y = 0;
};
using Stroke = std::vector<Point>;  // a polyline
using Glyph = std::vector<Stroke>;

// Returns the ways in which a digit is written (a 7 with and without its bar, an open and a closed 4, ...). REQUIRES:
// 0 <= digit <= 9
std::span<const Glyph> glyphs_of(int digit);

}  // namespace ddprun::data
