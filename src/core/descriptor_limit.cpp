// See descriptor_limit.hpp.
#include "core/descriptor_limit.hpp"

#include <sys/resource.h>
#include <algorithm>
#include <cstddef>

namespace lockstep {

std::size_t raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit more = limit;
    more.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1U << 17U);
    if (more.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  return limit.rlim_cur;
}

}  // namespace lockstep
