// See rate_limiter.hpp.
#include "serve/rate_limiter.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr double look_interval_s = 1;

}  // namespace

bool RateLimiter::admit(std::string_view client, double now) {
  if (per_second_ <= 0) return true;
  if (now - last_look_ >= look_interval_s) forget_idle(now);
  auto found = left_.find(client);
  if (found == left_.end()) found = left_.emplace(std::string(client), Left{most(), now}).first;
  Left& left = found->second;
  left = {left_of(left, now), now};
  if (left.requests < 1) return false;
  left.requests -= 1;
  return true;
}

double RateLimiter::left_of(const Left& left, double now) const noexcept {
  return std::min(most(), left.requests + (now - left.since) * per_second_);
}

/// A client that may ask for as many as a new one need not be known.
void RateLimiter::forget_idle(double now) {
  last_look_ = now;
  std::erase_if(left_, [&](const auto& each) { return left_of(each.second, now) >= most(); });
}

}  // namespace lockstep
