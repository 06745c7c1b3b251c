// Checks the ranges of all fields of optimizers and schedules.
#include "core/fields.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "optimizers/schedules.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Visits the fields of an optimizer, or of its schedule. Throws UsageError for the first value out of its range.
class RangeCheck : public FieldVisitor {
 public:
  /// `owner` is the prefix of field names in errors: "SGD's ", "SGD's CosineDecay.".
  explicit RangeCheck(std::string owner) : owner_(std::move(owner)) {}

  void required(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }
  void optional(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }
  void written_if(bool /*condition*/, std::string_view key, const auto& value, const auto&... range) const {
    check(key, value, range...);
  }

 private:
  void check(std::string_view /*key*/, bool /*value*/) const {}
  void check(std::string_view key, double value, const Interval& range) const {
    if (!range.contains(value)) refuse(key, value, range.to_string());
  }
  void check(std::string_view key, Steps steps, const Interval& range) const { check(key, steps.count, range); }
  void check(std::string_view key, const std::optional<double>& value, const Interval& range) const {
    if (value) check(key, *value, range);
  }
  void check(std::string_view key, const std::vector<double>& values, const Interval& range) const {
    for (const double value : values) check(key, value, range);
  }
  void check(std::string_view key, const std::vector<Steps>& rising) const {
    double last = -std::numeric_limits<double>::infinity();
    for (const Steps& steps : rising) {
      if (!(steps.count > last && std::isfinite(steps.count))) refuse(key, steps.count, "above the one before it");
      last = steps.count;
    }
  }
  void check(std::string_view key, const LearningRate& rate) const {
    const RangeCheck& self = *this;  // clang-tidy 14 overlooks a `this` that only generic lambdas use
    std::visit([&self, key](const auto& kind) { self.check_rate(key, kind); }, rate.kind());
  }

  void check_rate(std::string_view key, double constant) const { check(key, constant, not_negative); }

  template <typename Schedule>
  void check_rate(std::string_view /*key*/, const Schedule& schedule) const {
    using Traits = ScheduleTraits<Schedule>;
    const RangeCheck range_check(owner_ + std::string(Traits::class_name) + ".");
    if constexpr (requires { Traits::problem(schedule); }) {
      if (const std::string problem = Traits::problem(schedule); !problem.empty()) {
        throw UsageError(range_check.owner_ + problem);
      }
    }
    Traits::fields(range_check, schedule);
  }

  /// NaN means that a required field was not set.
  [[noreturn]] void refuse(std::string_view key, double value, std::string_view range) const {
    const std::string_view first = std::isnan(value) ? "given, " : std::isinf(value) ? "finite, " : "";
    throw UsageError(fmt::format("{}{} is {:.6g}; it must be {}{}", owner_, key, value, first, range));
  }

  std::string owner_;
};

}  // namespace

void check(const Optimizer& optimizer) {
  const std::string owner = std::string(keras_name(optimizer)) + "'s ";
  std::visit(
      [&owner](const auto& options) {
        const RangeCheck range_check(owner);
        visit_fields(range_check, options);
        if ((options.clipnorm != 0) + (options.clipvalue != 0) + (options.global_clipnorm != 0) > 1) {
          throw UsageError(owner + "options have more than one of clipnorm, clipvalue and global_clipnorm; choose one");
        }
        if (options.gradient_accumulation_steps == 1) {
          throw UsageError(owner + "gradient_accumulation_steps is 1; it must be at least 2, or 0 for none");
        }
      },
      optimizer);
}

}  // namespace lockstep
