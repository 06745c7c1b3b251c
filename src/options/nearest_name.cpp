// See nearest_name.hpp.
#include "options/nearest_name.hpp"

#include "core/lower_case.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace lockstep {
namespace {

/// The optimal string alignment distance: Levenshtein's, but two swapped neighbours are one edit.
std::size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::vector<std::size_t>> distance(left.size() + 1, std::vector<std::size_t>(right.size() + 1));
  for (std::size_t i = 0; i <= left.size(); ++i) {
    for (std::size_t j = 0; j <= right.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const bool is_same = left[i - 1] == right[j - 1];
      distance[i][j] =
          std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + (is_same ? 0 : 1)});
      if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[left.size()][right.size()];
}

constexpr std::size_t short_name = 5;  // a name with fewer characters is a letter away from too many others

/// What other programs call the same.
constexpr std::array<std::array<std::string_view, 2>, 4> synonyms{
    {{"fit", "train"}, {"eval", "evaluate"}, {"test", "evaluate"}, {"lr", "learning-rate"}}};

}  // namespace

std::string nearest_name(std::string_view given, std::span<const std::string> names) {
  std::size_t bound = given.size() < short_name ? 2 : 3;  // distances below it are accepted
  std::string nearest;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(given, name);
    if (distance >= bound) continue;
    bound = distance;
    nearest = name;
  }
  for (const auto& [synonym, name] : synonyms) {
    if (given == synonym && std::ranges::find(names, name) != names.end()) return std::string(name);
  }
  if (!nearest.empty()) return nearest;
  constexpr std::size_t min_beginning = 3;
  const auto begins = [given](const std::string& name) {
    return name.starts_with(given) || (name.size() >= short_name && given.starts_with(name));
  };
  if (const auto found = std::ranges::find_if(names, begins); given.size() >= min_beginning && found != names.end())
    return *found;
  if (given.size() < short_name) return {};
  const auto matches = [given](const std::string& name) { return name.ends_with(given); };
  const auto first = std::find_if(names.begin(), names.end(), matches);
  if (first == names.end() || std::find_if(first + 1, names.end(), matches) != names.end()) return {};
  return *first;
}

bool is_misspelling(std::string_view given, std::string_view name) {
  if (given == name || name.size() < short_name) return false;
  if (std::max(given.size(), name.size()) > std::min(given.size(), name.size()) + 1) return false;
  return lower_case(std::string(given)) == lower_case(std::string(name)) || edit_distance(given, name) == 1;
}

std::string did_you_mean(std::string_view prefix, std::string_view given, std::span<const std::string> names) {
  const std::string nearest = nearest_name(given, names);
  return nearest.empty() ? std::string() : "; did you mean " + std::string(prefix) + nearest + "?";
}

}  // namespace lockstep
