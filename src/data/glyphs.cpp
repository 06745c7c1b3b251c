// The tables of points. Two strokes that share an end form a corner.
#include "data/glyphs.hpp"

#include <array>
#include <cstddef>

namespace lockstep {

namespace {

using P = GlyphPoint;
using S = GlyphStroke;

// 0: an oval; an open one; a narrow, slanted one that overlaps itself.
constexpr P zero_a1[] = {{0.0F, -1.0F},  {-0.45F, -0.75F}, {-0.62F, 0.0F},  {-0.45F, 0.75F}, {0.0F, 1.0F},
                         {0.45F, 0.75F}, {0.62F, 0.0F},    {0.45F, -0.75F}, {0.0F, -1.0F}};
constexpr P zero_b1[] = {{0.25F, -0.85F}, {-0.2F, -1.0F}, {-0.6F, -0.3F}, {-0.5F, 0.6F}, {0.0F, 1.0F},
                         {0.5F, 0.6F},    {0.6F, -0.2F},  {0.3F, -0.75F}, {0.0F, -0.7F}};
constexpr P zero_c1[] = {{0.35F, -0.95F}, {-0.15F, -0.7F}, {-0.45F, 0.2F}, {-0.35F, 0.85F}, {0.0F, 0.95F},
                         {0.35F, 0.4F},   {0.5F, -0.4F},   {0.4F, -0.95F}, {0.1F, -0.95F}};
constexpr S zero_a[] = {zero_a1};
constexpr S zero_b[] = {zero_b1};
constexpr S zero_c[] = {zero_c1};
constexpr Glyph zero[] = {zero_a, zero_b, zero_c};

// 1: a bar; with a flag; with flag and foot.
constexpr P one_bar[] = {{0.0F, -1.0F}, {0.02F, 0.0F}, {0.0F, 1.0F}};
constexpr P one_flag[] = {{-0.4F, -0.55F}, {-0.15F, -0.75F}, {0.0F, -1.0F}};
constexpr P one_foot[] = {{-0.42F, 1.0F}, {0.45F, 0.98F}};
constexpr S one_a[] = {one_bar};
constexpr S one_b[] = {one_flag, one_bar};
constexpr S one_c[] = {one_flag, one_bar, one_foot};
constexpr Glyph one[] = {one_a, one_b, one_c};

// 2: with a straight foot; with a loop at the foot; angular as a Z.
constexpr P two_a1[] = {{-0.5F, -0.55F}, {-0.3F, -0.9F}, {0.1F, -1.0F},  {0.48F, -0.75F},
                        {0.45F, -0.3F},  {0.0F, 0.3F},   {-0.55F, 0.95F}};
constexpr P two_a2[] = {{-0.55F, 0.95F}, {0.0F, 0.9F}, {0.6F, 0.95F}};
constexpr P two_b1[] = {{-0.5F, -0.6F}, {-0.1F, -1.0F},  {0.45F, -0.8F}, {0.4F, -0.2F}, {-0.1F, 0.6F},
                        {-0.5F, 0.95F}, {-0.62F, 0.65F}, {-0.25F, 0.6F}, {0.2F, 0.9F},  {0.65F, 0.85F}};
constexpr P two_c1[] = {{-0.5F, -0.85F}, {0.0F, -0.98F}, {0.5F, -0.8F}};
constexpr P two_c2[] = {{0.5F, -0.8F}, {0.1F, 0.1F}, {-0.55F, 0.95F}};
constexpr S two_a[] = {two_a1, two_a2};
constexpr S two_b[] = {two_b1};
constexpr S two_c[] = {two_c1, two_c2, two_a2};
constexpr Glyph two[] = {two_a, two_b, two_c};

// 3: two arcs; flat on top; with a small loop in the middle.
constexpr P three_a1[] = {{-0.5F, -0.75F}, {-0.1F, -1.0F}, {0.4F, -0.8F}, {0.4F, -0.3F}, {-0.05F, -0.05F}};
constexpr P three_a2[] = {{-0.05F, -0.05F}, {0.5F, 0.2F}, {0.5F, 0.75F}, {0.0F, 1.0F}, {-0.5F, 0.75F}};
constexpr P three_b1[] = {{-0.5F, -0.95F}, {0.45F, -0.95F}};
constexpr P three_b2[] = {{0.45F, -0.95F}, {-0.05F, -0.15F}};
constexpr P three_b3[] = {{-0.05F, -0.15F}, {0.5F, 0.15F}, {0.5F, 0.7F}, {0.0F, 1.0F}, {-0.55F, 0.8F}};
constexpr P three_c1[] = {{-0.45F, -0.8F}, {0.0F, -1.0F},  {0.45F, -0.7F}, {0.2F, -0.2F}, {-0.15F, 0.0F},
                          {-0.05F, -0.2F}, {0.35F, 0.05F}, {0.5F, 0.5F},   {0.1F, 0.98F}, {-0.5F, 0.85F}};
constexpr S three_a[] = {three_a1, three_a2};
constexpr S three_b[] = {three_b1, three_b2, three_b3};
constexpr S three_c[] = {three_c1};
constexpr Glyph three[] = {three_a, three_b, three_c};

// Three styles of 4: open, closed, and rounded like a 9.
constexpr P four_a1[] = {{-0.4F, -0.9F}, {-0.5F, -0.3F}, {-0.5F, 0.15F}};
constexpr P four_a2[] = {{-0.5F, 0.15F}, {0.6F, 0.08F}};
constexpr P four_a3[] = {{0.3F, -0.7F}, {0.28F, 0.2F}, {0.22F, 1.0F}};
constexpr P four_b1[] = {{0.25F, 1.0F}, {0.27F, 0.0F}, {0.25F, -1.0F}};
constexpr P four_b2[] = {{0.25F, -1.0F}, {-0.6F, 0.35F}};
constexpr P four_b3[] = {{-0.6F, 0.35F}, {0.65F, 0.33F}};
constexpr P four_c1[] = {{-0.42F, -0.9F}, {-0.55F, -0.25F}, {-0.2F, 0.08F}, {0.36F, -0.15F}};
constexpr P four_c2[] = {{0.42F, -0.95F}, {0.36F, 0.0F}, {0.25F, 1.0F}};
constexpr S four_a[] = {four_a1, four_a2, four_a3};
constexpr S four_b[] = {four_b1, four_b2, four_b3};
constexpr S four_c[] = {four_c1, four_c2};
constexpr Glyph four[] = {four_a, four_b, four_c};

// 5: with corners; in one stroke, like an S; with a detached top stroke.
constexpr P five_a1[] = {{0.5F, -0.95F}, {-0.35F, -0.95F}};
constexpr P five_a2[] = {{-0.35F, -0.95F}, {-0.45F, -0.1F}};
constexpr P five_a3[] = {{-0.45F, -0.1F}, {0.1F, -0.3F}, {0.55F, 0.1F}, {0.45F, 0.75F}, {-0.05F, 1.0F}, {-0.55F, 0.8F}};
constexpr P five_b1[] = {{0.5F, -0.9F}, {-0.1F, -0.95F}, {-0.4F, -0.5F}, {0.0F, -0.1F},
                         {0.45F, 0.3F}, {0.3F, 0.85F},   {-0.2F, 1.0F},  {-0.55F, 0.8F}};
constexpr P five_c1[] = {{-0.25F, -0.85F}, {-0.4F, -0.2F}, {0.1F, -0.2F}, {0.45F, 0.2F}, {0.3F, 0.8F}, {-0.45F, 0.95F}};
constexpr P five_c2[] = {{-0.2F, -0.85F}, {0.2F, -0.9F}, {0.6F, -1.0F}};
constexpr S five_a[] = {five_a1, five_a2, five_a3};
constexpr S five_b[] = {five_b1};
constexpr S five_c[] = {five_c1, five_c2};
constexpr Glyph five[] = {five_a, five_b, five_c};

// 6: curved; nearly straight; with a small bowl.
constexpr P six_a1[] = {{0.4F, -0.95F}, {-0.1F, -0.6F}, {-0.5F, 0.1F},  {-0.45F, 0.75F}, {0.0F, 1.0F},
                        {0.45F, 0.75F}, {0.45F, 0.25F}, {0.05F, 0.05F}, {-0.42F, 0.35F}};
constexpr P six_b1[] = {{0.15F, -1.0F}, {-0.35F, -0.1F}, {-0.5F, 0.5F},   {-0.2F, 0.95F}, {0.3F, 0.9F},
                        {0.5F, 0.5F},   {0.2F, 0.12F},   {-0.25F, 0.25F}, {-0.45F, 0.6F}};
constexpr P six_c1[] = {{-0.1F, -1.0F}, {-0.4F, -0.3F}, {-0.4F, 0.5F}, {-0.05F, 0.95F},
                        {0.35F, 0.8F},  {0.3F, 0.4F},   {-0.1F, 0.4F}, {-0.38F, 0.65F}};
constexpr S six_a[] = {six_a1};
constexpr S six_b[] = {six_b1};
constexpr S six_c[] = {six_c1};
constexpr Glyph six[] = {six_a, six_b, six_c};

// 7: plain; with a bar; with a serif.
constexpr P seven_top[] = {{-0.55F, -0.9F}, {0.0F, -0.93F}, {0.55F, -0.9F}};
constexpr P seven_leg[] = {{0.55F, -0.9F}, {0.15F, 0.0F}, {-0.15F, 1.0F}};
constexpr P seven_bar[] = {{-0.3F, 0.08F}, {0.48F, 0.0F}};
constexpr P seven_serif[] = {{-0.58F, -0.55F}, {-0.55F, -0.9F}};
constexpr S seven_a[] = {seven_top, seven_leg};
constexpr S seven_b[] = {seven_top, seven_leg, seven_bar};
constexpr S seven_c[] = {seven_serif, seven_top, seven_leg};
constexpr Glyph seven[] = {seven_a, seven_b, seven_c};

// 8: in one stroke; two rings; not quite closed.
constexpr P eight_a1[] = {{0.4F, -0.75F}, {0.0F, -1.0F}, {-0.42F, -0.75F}, {-0.3F, -0.3F},
                          {0.3F, 0.2F},   {0.5F, 0.65F}, {0.0F, 1.0F},     {-0.5F, 0.65F},
                          {-0.3F, 0.2F},  {0.3F, -0.3F}, {0.4F, -0.75F}};
constexpr P eight_b1[] = {{0.0F, -1.0F},   {-0.38F, -0.75F}, {-0.33F, -0.25F}, {0.0F, -0.05F},
                          {0.33F, -0.25F}, {0.38F, -0.75F},  {0.0F, -1.0F}};
constexpr P eight_b2[] = {{0.0F, -0.05F}, {-0.45F, 0.2F}, {-0.45F, 0.75F}, {0.0F, 1.0F},
                          {0.45F, 0.75F}, {0.45F, 0.2F},  {0.0F, -0.05F}};
constexpr P eight_c1[] = {{0.5F, -0.85F}, {0.0F, -0.95F}, {-0.4F, -0.65F}, {-0.05F, -0.15F},
                          {0.35F, 0.3F},  {0.3F, 0.85F},  {-0.15F, 1.0F},  {-0.4F, 0.65F},
                          {-0.1F, 0.15F}, {0.3F, -0.3F},  {0.6F, -0.75F}};
constexpr S eight_a[] = {eight_a1};
constexpr S eight_b[] = {eight_b1, eight_b2};
constexpr S eight_c[] = {eight_c1};
constexpr Glyph eight[] = {eight_a, eight_b, eight_c};

// 9: with a straight tail; with a curled one; in one curve.
constexpr P nine_ring[] = {{0.42F, -0.6F},   {0.0F, -0.98F}, {-0.45F, -0.65F},
                           {-0.35F, -0.15F}, {0.1F, -0.1F},  {0.42F, -0.6F}};
constexpr P nine_straight[] = {{0.42F, -0.6F}, {0.38F, 0.2F}, {0.28F, 1.0F}};
constexpr P nine_curl[] = {{0.42F, -0.6F}, {0.42F, 0.3F}, {0.15F, 0.95F}, {-0.4F, 0.85F}};
constexpr P nine_c1[] = {{0.35F, -0.75F}, {-0.1F, -0.95F}, {-0.45F, -0.5F}, {-0.1F, -0.1F},
                         {0.35F, -0.5F},  {0.42F, -0.7F},  {0.3F, 0.2F},    {-0.1F, 1.0F}};
constexpr S nine_a[] = {nine_ring, nine_straight};
constexpr S nine_b[] = {nine_ring, nine_curl};
constexpr S nine_c[] = {nine_c1};
constexpr Glyph nine[] = {nine_a, nine_b, nine_c};

constexpr std::array<std::span<const Glyph>, 10> digits{zero, one, two, three, four, five, six, seven, eight, nine};

}  // namespace

std::span<const Glyph> glyphs_of(int digit) { return digits.at(static_cast<std::size_t>(digit)); }

}  // namespace lockstep
