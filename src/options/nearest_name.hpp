// "Did you mean": finds the known name that is closest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// The name of which `given` is a known synonym, such as "lr". Else the name closest to it, at most two inserted,
/// deleted, changed or swapped characters away (one if `given` has fewer than five characters). Else, for three
/// characters or more, the first name that begins with `given`, or is its beginning. Else, for five characters or more,
/// the only name that ends in `given`. Empty if no name matches.
[[nodiscard]] std::string nearest_name(std::string_view given, std::span<const std::string> names);

/// Whether `given` differs from `name` by case only, or by one inserted, deleted, changed or swapped character. False
/// for names of fewer than five characters.
[[nodiscard]] bool is_misspelling(std::string_view given, std::string_view name);

/// "; did you mean --epochs?", or "" without a nearest name. `prefix` goes before the name.
[[nodiscard]] std::string did_you_mean(std::string_view prefix, std::string_view given,
                                       std::span<const std::string> names);

}  // namespace lockstep
