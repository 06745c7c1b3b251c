// See intersection.hpp.
#include "metrics/intersection.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

double mean_intersection(std::span<const double> sums, std::span<const int> target_classes) {
  constexpr double epsilon = 1e-7;  // Keras'
  constexpr double least_union = 1e-9;
  std::vector<int> classes(target_classes.begin(), target_classes.end());
  if (classes.empty()) {
    classes.resize(sums.size() / IntersectionSums::per_class);
    std::iota(classes.begin(), classes.end(), 0);
  }
  double sum = 0;
  double occurring = 0;
  for (const int each : classes) {
    const std::span<const double> its =
        sums.subspan(IntersectionSums::per_class * static_cast<std::size_t>(each), IntersectionSums::per_class);
    const double either = its[1] + its[2] - its[0];
    if (either <= least_union) continue;
    sum += its[0] / (either + epsilon);
    ++occurring;
  }
  return sum / (occurring + epsilon);
}

void check_target_classes(std::span<const int> target_classes, int classes, std::string_view metric) {
  if (target_classes.empty())
    throw UsageError(fmt::format("the metric {}'s target_class_ids are empty; give at least one class", metric));
  const auto wrong = std::ranges::find_if(target_classes, [classes](int each) { return each < 0 || each >= classes; });
  if (wrong == target_classes.end()) return;
  throw UsageError(
      fmt::format("the metric {} has the target class {}, but its classes are 0 to {}", metric, *wrong, classes - 1));
}

}  // namespace lockstep
