// See regularizers.hpp.
#include "layers/regularizers.hpp"

#include "layers/named_choice.hpp"

#include <cstddef>

namespace lockstep {

Regularizer::Regularizer(const char* name)
    : Regularizer(named_choice("regularizer", name, regularizer_rows, [](const RegularizerRow& row) {
                    return row.short_name;
                  }).defaults) {}

const RegularizerRow& row_of(const Regularizer& regularizer) {
  constexpr std::size_t l1 = 0;
  constexpr std::size_t l2 = 1;
  constexpr std::size_t both = 2;
  if (regularizer.l1 == 0) return regularizer_rows[l2];
  return regularizer_rows[regularizer.l2 == 0 ? l1 : both];
}

}  // namespace lockstep
