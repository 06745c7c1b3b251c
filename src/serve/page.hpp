// The page of a server: the model, its scores and age, and a field to draw on for models of small pictures.
#pragma once

#include <string_view>

namespace lockstep {

[[nodiscard]] std::string_view page_text() noexcept;

}  // namespace lockstep
