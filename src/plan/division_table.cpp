// See division_table.hpp.
#include "plan/division_table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace lockstep {

namespace {

/// "16 + 16", or "16 each" of many.
std::string dealt(std::int64_t channels, int ranks) {
  constexpr int few = 4;
  const auto size = [&](int rank) { return std::to_string(channels_of(channels, rank, ranks).size()); };
  if (ranks > few) {
    return size(0) == size(ranks - 1) ? size(0) + " each" : size(ranks - 1) + " to " + size(0) + " each";
  }
  std::string text = size(0);
  for (int rank = 1; rank < ranks; ++rank) text += " + " + size(rank);
  return text;
}

/// By examples moving averages are summed as well.
std::int64_t all_values(const LayerInfo& layer) {
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : layer.parameters) count += parameter.shape.elements();
  return count;
}

std::int64_t trainable(const LayerInfo& layer) {
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : layer.parameters) {
    if (parameter.trainable) count += parameter.shape.elements();
  }
  return count;
}

}  // namespace

std::vector<LayerDivision> layer_divisions(const Graph& whole, const std::optional<FeatureDivision>& division,
                                           int ranks, std::size_t batch) {
  std::vector<LayerDivision> rows;
  const double sent = ranks > 1 ? 2.0 * (ranks - 1) / ranks * sizeof(float) : 0;  // of each element that is summed up
  Way before = Way::repeated;
  for (std::size_t i = 1; i < whole.forward.size(); ++i) {
    const Operation& operation = whole.forward[i];
    if (operation.kind == OperationKind::loss) break;
    const LayerInfo& layer = whole.layers[operation.layer];
    LayerDivision row{layer.name, "by examples", 0};
    double elements = 0;
    double exchanged = 0;
    if (!division) {
      elements = static_cast<double>(all_values(layer));
    } else {
      const Way way = division->ways[i];
      const double inputs = static_cast<double>(batch) * static_cast<double>(whole.tensors[operation.input].elements());
      const bool handed_over = way == Way::rows && before == Way::examples;
      const bool behind_sum = before == Way::rows || (before == Way::repeated && i > 1);
      if (way == Way::repeated) row.how = "whole, by every worker";
      if (way == Way::partial) {
        elements = static_cast<double>(trainable(layer));
        row.how = std::string("whole, by every worker") + (elements > 0 ? "; gradients summed" : "");
      }
      if (way == Way::examples) elements = static_cast<double>(all_values(layer));
      if (way == Way::columns) {
        row.how = "by channels, " + dealt(whole.tensors[operation.output].channels, ranks);
      }
      if (way == Way::rows) {
        row.how = "by input channels, " + dealt(whole.tensors[operation.input].channels, ranks);
        elements = static_cast<double>(batch) * static_cast<double>(whole.tensors[operation.output].elements());
      }
      const bool learns_before = std::any_of(whole.backward.begin(), whole.backward.end(), [&](const Operation& other) {
        return other.output == operation.output && other.input_gradient;
      });
      // Values and, where somebody wants them, gradients: each rank gives the others their part of what it has.
      if (handed_over) exchanged = (learns_before ? 2 : 1) * inputs * (ranks - 1) / ranks / ranks * sizeof(float);
      if (behind_sum && learns_before && (way == Way::columns || way == Way::partial)) elements += inputs;
      before = way;
    }
    row.bytes_a_step = sent * elements + exchanged;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string bytes_to_text(double bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text.data();
}

std::string to_text(const std::vector<LayerDivision>& rows) {
  std::size_t names = 0;
  std::size_t hows = 0;
  for (const LayerDivision& row : rows) {
    names = std::max(names, row.layer.size());
    hows = std::max(hows, row.how.size());
  }
  std::string text;
  for (const LayerDivision& row : rows) {
    text += "  " + row.layer + std::string(names - row.layer.size() + 2, ' ') + row.how;
    if (row.bytes_a_step > 0) {
      text += std::string(hows - row.how.size() + 2, ' ') + "sends " + bytes_to_text(row.bytes_a_step) + " a step";
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
