// See window.hpp.
#include "layers/window.hpp"

#include <lockstep/core/error.hpp>

#include <cstdint>
#include <type_traits>
#include <variant>

namespace lockstep {

PoolingWindows pooling_windows(const Layer& layer, std::int64_t height, std::int64_t width) {
  return std::visit(
      [&]<typename L>(const L& any) -> PoolingWindows {
        if constexpr (std::is_base_of_v<Pooling2D, L>) {
          const auto window = [&any](std::int64_t input, int kernel, int stride) {
            return Window{.input = input, .kernel = kernel, .stride = stride, .padding = any.padding};
          };
          return {window(height, any.pool_size.height, any.strides.height),
                  window(width, any.pool_size.width, any.strides.width)};
        } else if constexpr (std::is_same_v<L, GlobalAveragePooling2D>) {
          return {{.input = height, .kernel = height, .stride = height},
                  {.input = width, .kernel = width, .stride = width}};
        } else {
          throw InternalError("a pooling was lowered from a layer without windows; please report this");
        }
      },
      layer);
}

}  // namespace lockstep
