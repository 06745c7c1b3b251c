// The secret that all launchers of a job share, and random numbers for challenges. The token itself is never sent: each
// side proves that it knows the token with an HMAC of fresh nonces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/environment.hpp"

namespace lockstep {

class JobToken {
 public:
  /// An empty token: proofs work the same way, but anyone can compute them.
  JobToken() = default;
  explicit JobToken(std::string secret) : secret_(std::move(secret)) {}

  /// Reads the first line of `file`, or LOCKSTEP_JOB_TOKEN if `file` is empty. Throws UsageError if the file cannot be
  /// read or its first line is empty.
  [[nodiscard]] static JobToken load(const Environment& environment, const std::string& file);

  [[nodiscard]] bool is_set() const noexcept { return !secret_.empty(); }

  /// Whether it could be found by trying: shorter than what `openssl rand -hex 8` writes.
  [[nodiscard]] bool is_short() const noexcept { return is_set() && secret_.size() < 16; }

  /// HMAC-SHA256 of `text`: 32 bytes.
  [[nodiscard]] std::string sign(std::string_view text) const;
  /// Compares in constant time.
  [[nodiscard]] bool verify(std::string_view proof, std::string_view text) const;

 private:
  std::string secret_;
};

/// Cryptographically secure random bytes.
[[nodiscard]] std::string random_bytes(std::size_t count);
[[nodiscard]] std::uint64_t random_number();

}  // namespace lockstep
