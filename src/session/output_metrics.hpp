// What a step writes about the loss and the metrics of a model's outputs, and the names under which the values are
// logged: those of Keras.
#pragma once

#include "graph/output_options.hpp"

#include <lockstep/training/metric_sums.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class OutputMetrics {
 public:
  using Visitor = std::function<void(std::string_view name, double value)>;

  /// `outputs` must outlive this object.
  explicit OutputMetrics(std::span<const OutputOptions> outputs);

  /// Elements of MetricSums::sums.
  [[nodiscard]] std::size_t num_sums() const noexcept;

  /// Reads the elements of the metrics parameter. Reuses the memory of `sums`.
  void read(std::span<const float> written, MetricSums& sums) const;

  /// Calls visitor(name, value) for the loss, of several outputs for the loss of each, and for each metric. The names
  /// live as long as this object.
  void visit_values(const MetricSums& sums, const Visitor& visitor) const;

 private:
  /// As visit_values(), but names live during a visit only.
  void name_values(const MetricSums& sums, const Visitor& visitor) const;

  std::span<const OutputOptions> outputs_;
  std::vector<std::string> names_;
};

}  // namespace lockstep
