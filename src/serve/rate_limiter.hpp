// Bounds the requests per second of each client.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

/// A client may ask for as many at once as for a second, and gains `per_second` each second.
class RateLimiter {
 public:
  /// 0: no limit.
  explicit RateLimiter(double per_second) : per_second_(per_second) {}

  /// Whether this client may ask now.
  [[nodiscard]] bool admit(std::string_view client, double now);

  [[nodiscard]] std::size_t clients() const noexcept { return left_.size(); }

 private:
  struct Left {
    double requests = 0;
    double since = 0;
  };

  [[nodiscard]] double most() const noexcept { return per_second_ < 1 ? 1 : per_second_; }
  [[nodiscard]] double left_of(const Left& left, double now) const noexcept;
  void forget_idle(double now);

  double per_second_;
  std::map<std::string, Left, std::less<>> left_;
  double last_look_ = 0;
};

}  // namespace lockstep
