// The error of a loss or a weight that is NaN or infinite.
#pragma once

#include <lockstep/core/error.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

class NonfiniteError : public DataError {
 public:
  /// `problem`: a clause that says which value, and where. `step`: the optimizer step after which it was found.
  NonfiniteError(const std::string& problem, std::uint64_t step,
                 const std::string& remedy = "a smaller --learning-rate may help")
      : DataError(problem + "; " + remedy), problem_(problem), step_(step) {}

  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

 private:
  std::string problem_;
  std::uint64_t step_;
};

}  // namespace lockstep
