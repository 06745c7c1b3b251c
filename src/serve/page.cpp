// See page.hpp. The text is page.html's.
#include "serve/page.hpp"

#include <string_view>

namespace lockstep {

std::string_view page_text() noexcept {
  return
#include LOCKSTEP_PAGE_TEXT
      ;
}

}  // namespace lockstep
