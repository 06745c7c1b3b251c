// See job_token.hpp. Of OpenSSL this takes the digest, the comparison and the random bytes.
#include "cluster/job_token.hpp"

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

#include "lockstep/core/error.hpp"

namespace lockstep {

JobToken JobToken::of(const Environment& environment, const std::string& file) {
  if (file.empty()) return JobToken(value_of(environment, "LOCKSTEP_JOB_TOKEN"));
  std::ifstream input(file);
  std::string line;
  if (!input.is_open() || !std::getline(input, line)) {
    throw UsageError("--job-token-file " + file + " cannot be read; mount the secret there, or leave the option out");
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  if (line.empty()) throw UsageError("--job-token-file " + file + " begins with an empty line; put the token there");
  return JobToken(line);
}

std::string JobToken::prove(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size) == nullptr) {
    throw InternalError("OpenSSL's HMAC failed");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

bool JobToken::checks(std::string_view proof, std::string_view text) const {
  const std::string expected = prove(text);
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::string unpredictable_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    throw InternalError("OpenSSL's RAND_bytes failed");
  }
  return bytes;
}

std::uint64_t unpredictable_number() {
  std::uint64_t number = 0;
  std::memcpy(&number, unpredictable_bytes(sizeof number).data(), sizeof number);
  return number;
}

}  // namespace lockstep
