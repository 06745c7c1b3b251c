// See job_token.hpp. OpenSSL provides HMAC, the constant-time comparison and the random bytes.
#include "cluster/config/job_token.hpp"

#include "core/regular_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {

JobToken JobToken::load(const Environment& environment, const std::string& file) {
  if (file.empty()) return JobToken(value_of(environment, "LOCKSTEP_JOB_TOKEN"));
  require_regular_file(file, "file that holds the token");
  std::ifstream input(file);
  std::string line;
  if (!input.is_open() || !std::getline(input, line)) {
    throw UsageError(
        fmt::format("--job-token-file {}: the file cannot be read; mount the secret there, or omit the option", file));
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  if (line.empty())
    throw UsageError(fmt::format("--job-token-file {}: the first line is empty; put the token there", file));
  return JobToken(line);
}

std::string JobToken::sign(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size) == nullptr) {
    throw InternalError("HMAC failed (OpenSSL)");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

bool JobToken::verify(std::string_view proof, std::string_view text) const {
  const std::string expected = sign(text);
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    throw InternalError("RAND_bytes failed (OpenSSL)");
  }
  return bytes;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  std::memcpy(&number, random_bytes(sizeof number).data(), sizeof number);
  return number;
}

}  // namespace lockstep
